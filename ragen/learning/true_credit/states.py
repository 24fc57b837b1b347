"""Which turns are credited, and the states before them, of which equal ones share their continuations.

turns, selection -> credited -> trajectories;   turns of these -> TurnStates
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.schemas.datasets import ERROR_STATUSES

Row = dict[str, Any]


@dataclass(frozen=True)
class Credited:
    """The trajectories whose turns are credited.

    Attributes:
        trajectories: Their ids, in the order of `turns`.
        num_all: Trajectories that there were to choose from, those left out included.
        num_errors: Of these, those that an error or a deadline ended, which are left out.
        num_greedy: Of these, the greedy ones, which the policy did not sample and which are left out.
    """

    trajectories: list[str]
    num_all: int
    num_errors: int
    num_greedy: int


@dataclass(frozen=True)
class TurnStates:
    """The states before turns.

    Attributes:
        digests: Digest of each state, in the order of first appearance. [S]
        places: Trajectory and turn of its first appearance. [S]
        turns: Trajectory, group and turn of each credited turn, in the order of time within a trajectory. [T]
        before: State before each turn. int64 [T]
        after: State before the turn that follows; -1 where the episode ended. int64 [T]
    """

    digests: list[str]
    places: list[tuple[str, int]]
    turns: list[tuple[str, str, int]]
    before: np.ndarray
    after: np.ndarray


def credited(turns: pa.Table, groups: Sequence[str], sample: int | None, rank: Any) -> Credited:
    """Choose trajectories of a rollout.

    Args:
        turns: Dataset `turns`; `trajectory_id`, `group_id`, `status` and `origin` are read.
        groups: Ids of the groups.
        sample: How many of their trajectories to take, those of lowest rank. None: all.
        rank: Function of a trajectory's id.
    """
    frame = pl.DataFrame(turns.select(["trajectory_id", "group_id", "status", "origin"]))
    each = (
        frame.filter(pl.col("group_id").is_in(list(groups)))
        .group_by("trajectory_id", maintain_order=True)
        .agg(is_error=pl.col("status").is_in(ERROR_STATUSES).any(), is_greedy=(pl.col("origin") == "greedy").any())
    )
    names: list[str] = each.filter(~(pl.col("is_error") | pl.col("is_greedy")))["trajectory_id"].to_list()
    if sample is not None:
        taken = set(sorted(names, key=rank)[:sample])
        names = [name for name in names if name in taken]
    return Credited(names, each.height, int(each["is_error"].sum()), int(each["is_greedy"].sum()))


def find_states(rows: Sequence[Row], *, is_history_shared: bool) -> TurnStates:
    """Find the states before turns.

    Args:
        rows: Rows of `turns`, those of a trajectory together and in order of time.
        is_history_shared: Whether turns with different histories may share a state. False where a reward may depend on
            earlier turns that the policy no longer sees.
    """
    index: dict[str, int] = {}
    places: list[tuple[str, int]] = []
    before: list[int] = []
    context: list[int] = []
    history: list[Any] = []
    environment = ""
    for row in rows:
        if row["turn"] == 0:
            environment, history = row["initial_state_digest"], []
        context = row["prompt_ids"] if row["is_context_start"] else context + row["prompt_ids"]
        facts = [row["env"], environment, context, row["observation"], row["turn"], row["actions_left"]]
        if row["finish_reason"] == "none":  # its prompt is not stored
            facts.append(row["trajectory_id"])
        if not is_history_shared:
            facts.append(history)
        digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()
        if digest not in index:
            index[digest] = len(index)
            places.append((row["trajectory_id"], row["turn"]))
        before.append(index[digest])
        context = context + row["response_ids"]
        history = [*history, row["env_seed"], row["response_ids"], row["state_digest"]]
        environment = row["state_digest"]
    numbers = np.array(before, dtype=np.int64)
    is_last = np.array([row["turn"] == 0 for row in rows[1:]] + [True], dtype=bool)
    after = np.where(is_last, -1, np.append(numbers[1:], -1))
    turns = [(row["trajectory_id"], row["group_id"], row["turn"]) for row in rows]
    return TurnStates(list(index), places, turns, numbers, after)
