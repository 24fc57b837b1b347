"""Reasoning and the prompts it was sampled under, from stored turns: the input of the cross-scoring in `template`.

    turns -> pick (one turn per trajectory) -> Reasoned: context, reasoning -> crossed: every reasoning in every context

Tokens are the sampled ones; nothing is tokenised here. Legend: N reasonings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.core.seeding import python_random
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.schemas.datasets import ERROR_STATUSES

Choice = Literal["first_turn", "any_turn"]
CHOICES: tuple[Choice, ...] = ("first_turn", "any_turn")
Decode = Callable[[list[int]], str]
_TAG = "<think>"


@dataclass(frozen=True)
class Reasoned:
    """A turn with a reasoning.

    Attributes:
        context: X: token ids of prompts and responses up to the reasoning.
        reasoning: Z: token ids of the reasoning, without the tags; at least one.
    """

    context: tuple[int, ...]
    reasoning: tuple[int, ...]


def pick(turns: pa.Table, choice: Choice, number: int, seed: int, decode: Decode) -> list[Reasoned]:
    """Choose turns with a reasoning, at most one per trajectory.

    Args:
        turns: Dataset `turns`.
        choice: 'first_turn': the first turn of each trajectory. 'any_turn': a random turn of each. In both cases one
            member of every group comes first, so that there are as many different prompts as possible.
        number: Maximum number of turns.
        seed: Seed of the random choice.
        decode: Token ids -> text, special tokens included.

    Returns:
        At most `number` turns; fewer if fewer trajectories without errors have a reasoning. Greedy trajectories are
        skipped.
    """
    turns = turns.sort_by([("trajectory_id", "ascending"), ("turn", "ascending")])
    columns = ["trajectory_id", "group_id", "member", "turn", "status", "think", "origin"]
    rows = turns.select(columns).append_column("row", pa.array(range(turns.num_rows))).to_pylist()
    left_out = {r["trajectory_id"] for r in rows if r["status"] in ERROR_STATUSES or r["origin"] == "greedy"}
    candidates: dict[str, list[dict]] = {}
    for row in rows:
        is_first = choice == "any_turn" or row["turn"] == 0
        if row["think"] and is_first and row["trajectory_id"] not in left_out:
            candidates.setdefault(row["trajectory_id"], []).append(row)
    random = python_random(str(seed), choice)
    drawn = [random.choice(turns_of_one) for turns_of_one in candidates.values()]
    drawn.sort(key=lambda row: (row["member"], row["group_id"]))
    chosen = []
    for row in drawn:
        reasoned = _reasoned(turns, row["row"], row["think"], decode)
        if reasoned is not None:
            chosen.append(reasoned)
        if len(chosen) == number:
            break
    return chosen


def _reasoned(turns: pa.Table, row: int, think: str, decode: Decode) -> Reasoned | None:
    """Build the turn of a row; None if no token begins inside the reasoning."""
    ids = turns["response_ids"][row].as_py()
    ends = [len(decode(ids[: number + 1])) for number in range(len(ids))]
    response = decode(ids)
    begin = response.find(think, response.find(_TAG) + len(_TAG) if _TAG in response else 0)  # else the prompt has it
    inside = [n for n, start in enumerate([0, *ends[:-1]]) if begin <= start < begin + len(think)]
    if begin < 0 or not inside:
        return None
    context: list[int] = []
    first = row
    while not turns["is_context_start"][first].as_py():
        first -= 1
    for before in range(first, row):
        context += turns["prompt_ids"][before].as_py() + turns["response_ids"][before].as_py()
    context += turns["prompt_ids"][row].as_py() + ids[: inside[0]]
    return Reasoned(tuple(context), tuple(ids[inside[0] : inside[-1] + 1]))


def crossed(reasoned: Sequence[Reasoned], images: ImageTable | None = None) -> list[Trajectory]:
    """Combine every reasoning with every context, row by row, into trajectories of one segment each. [N * N]

    The learner computes equal trajectories and shared prefixes once (`learners.prefix_rows`).

    Args:
        reasoned: The reasonings and their contexts.
        images: Images of the contexts, which have ids of their own there; None if they are of text alone.
    """
    return [_trajectory(context.context, row.reasoning, images) for row in reasoned for context in reasoned]


def matrices(logprobs: np.ndarray, reasoned: Sequence[Reasoned]) -> dict[str, np.ndarray]:
    """Reduce the log-probs of all tokens of `crossed` to matrices: 'token', means over a reasoning, 'sequence', sums.

    Args:
        logprobs: Log-probs of the reasoning tokens, concatenated.
        reasoned: The argument of `crossed`.

    Returns:
        float64 [N, N]; row i is a reasoning, column j a context.
    """
    lengths_N = np.array([len(row.reasoning) for row in reasoned])
    starts = np.cumsum(np.append(0, np.repeat(lengths_N, len(reasoned))[:-1]))
    sums_NN = np.add.reduceat(logprobs.astype(np.float64), starts).reshape(len(reasoned), -1)
    return {"token": sums_NN / lengths_N[:, None], "sequence": sums_NN}


def _trajectory(context: tuple[int, ...], reasoning: tuple[int, ...], images: ImageTable | None) -> Trajectory:
    token_ids = np.array([*context, *reasoning], dtype=np.int64)
    mask = np.arange(len(token_ids)) >= len(context)
    nothing = np.zeros(len(token_ids), dtype=np.float32)
    segment = Segment(token_ids, mask, nothing, np.where(mask, 0, -1), nothing.astype(np.int8))
    turn = np.zeros(1, int), np.zeros(1, bool), np.ones(1)
    return Trajectory("crossed", "crossed", (segment,), np.zeros(1), 0.0, 0.0, *turn, images=images)
