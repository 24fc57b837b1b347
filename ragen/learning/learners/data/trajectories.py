"""Trajectories to train on, from stored turns, rewards and the filter's selection.

    turns, rewards, selection -> assemble -> [Trajectory] -> learner

Token ids are those that were sampled; masks follow from the column an id is stored in. Nothing is tokenised here.
Legend: T tokens of a segment, K turns of a trajectory.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.learners.data.spans import UNKNOWN, Spans
from starpo.ragen.learning.objectives.chosen import selection_weight
from starpo.schemas.datasets import ERROR_STATUSES, UNKNOWN_FINISH

if TYPE_CHECKING:
    from starpo.ragen.agents.vision.image_table import ImageTable


@dataclass(frozen=True)
class Segment:
    """Consecutive turns that the model saw as one context, up to the last response token.

    Attributes:
        token_ids: Prompts and responses in order, images with ids of their own (`Trajectory.images`). int64 [T]
        response_mask: Whether the model sampled the token. bool [T]
        behaviour_logprobs: Log-probs under the behaviour policy, nats; 0 outside the mask. float32 [T]
        turn: Index of the turn that a response token belongs to; -1 outside the mask. int64 [T]
        kind: Part of the response that a token belongs to, as in `spans`; UNKNOWN outside the mask and if not needed.
            int8 [T]
    """

    token_ids: np.ndarray
    response_mask: np.ndarray
    behaviour_logprobs: np.ndarray
    turn: np.ndarray
    kind: np.ndarray

    def __post_init__(self) -> None:
        length = len(self.token_ids)
        assert len(self.response_mask) == len(self.behaviour_logprobs) == len(self.turn) == len(self.kind) == length


@dataclass(frozen=True)
class Trajectory:
    """Episode as a learner sees it.

    Attributes:
        trajectory_id: As in `turns`.
        group_id: As in `turns`.
        segments: Segments in time order: one with context = 'full', one per turn with 'window'. Segments without a
            response token are left out, so a trajectory without any response has none.
        turn_rewards: Total reward of each turn. float64 [K]
        trajectory_return: Their sum, before any normalisation.
        normalised_return: The return used in training: the sum after the configured normalisation.
        states: Code of the environment's state before each turn. Equal codes mean equal states, within one call of
            `assemble`. int64 [K]
        reasoning: Reasoning of each turn, from which estimators may mark turns; None if malformed. str [K]
        turn_weights: Loss weight of each turn's tokens; less than 1 where search chose the response more often than
            the policy samples it (`objectives.chosen`). float64 [K]
        greedy_return: Return of the group's greedy member before any normalisation; None if none was played, or if it
            ended in an error.
        images: Images of the segments, the same table for all trajectories of an update; None if they are of text
            alone.
        teacher_logprobs: Log-probs of the response tokens under a teacher, in their order; None without. float32
        top_token_ids: K tokens at the position of each response token, end to end, that a teacher finds most probable;
            None without. int32
        top_logprobs: Their log-probs under it, aligned. float32
        true_advantages: Advantage of each turn as continuations measured it; None if it was not measured. float64 [K]
    """

    trajectory_id: str
    group_id: str
    segments: tuple[Segment, ...]
    turn_rewards: np.ndarray
    trajectory_return: float
    normalised_return: float
    states: np.ndarray
    reasoning: np.ndarray
    turn_weights: np.ndarray
    greedy_return: float | None = None
    images: "ImageTable | None" = None
    teacher_logprobs: np.ndarray | None = None
    top_token_ids: np.ndarray | None = None
    top_logprobs: np.ndarray | None = None
    true_advantages: np.ndarray | None = None

    @property
    def num_response_tokens(self) -> int:
        """Number of tokens that the model sampled, over all segments."""
        return sum(int(segment.response_mask.sum()) for segment in self.segments)


def assemble(
    turns: pa.Table,
    rewards: pa.Table,
    selection: pa.Table,
    spans: Spans | None = None,
    images: "ImageTable | None" = None,
) -> list[Trajectory]:
    """Assemble the valid trajectories of the kept groups.

    Args:
        turns: Dataset `turns`, rows in any order.
        rewards: Dataset `rewards` of exactly these turns, rows in any order.
        selection: Dataset `selection` that covers all of their groups.
        spans: Classifies tokens; None if token kinds are not needed.
        images: Images of the turns, if their `prompt_ids` have ids of the images' own.

    Returns:
        The trajectories in order of first appearance in `turns`; empty if nothing is kept.

    Raises:
        LearnerError: If the three datasets do not cover the same turns and groups, tokens do not decode to their
            response, or a kept trajectory was imported without its tokens or log-probs.
    """
    trajectory_ids = pc.unique(turns["trajectory_id"])
    turns, row_trajectory = _in_order(turns, trajectory_ids)
    rewards, reward_trajectory = _in_order(rewards, trajectory_ids)
    _check_same_turns(turns, rewards, row_trajectory, reward_trajectory)
    greedy = _greedy_returns(turns, rewards)
    is_kept = _is_kept(turns, selection) & _numpy(rewards["is_valid"])
    turns, rewards, row_trajectory = turns.filter(is_kept), rewards.filter(is_kept), row_trajectory[is_kept]
    if not turns.num_rows:
        return []
    _check_recorded(turns)
    first_rows = np.flatnonzero(np.diff(row_trajectory, prepend=-1))
    segments, rows_of_segments = _segments(turns, row_trajectory, spans)
    bounds = np.searchsorted(rows_of_segments, np.append(first_rows, turns.num_rows))
    weights = selection_weight(_numpy(turns["num_as_good"]), _numpy(turns["num_candidates"]))
    of_turns = (_numpy(rewards["total"]), _states(turns, first_rows), _numpy(turns["think"]), weights)
    turn_rewards, states, reasoning, turn_weights = (np.split(values, first_rows[1:]) for values in of_turns)
    rewards, ids = rewards.take(first_rows), turns.select(["trajectory_id", "group_id"]).take(first_rows)
    identities = zip(ids["trajectory_id"].to_pylist(), ids["group_id"].to_pylist(), strict=True)
    return [
        Trajectory(
            trajectory_id,
            group_id,
            tuple(segments[bounds[number] : bounds[number + 1]]),
            turn_rewards[number],
            rewards["trajectory_return"][number].as_py(),
            rewards["normalised_return"][number].as_py(),
            states[number],
            reasoning[number],
            turn_weights[number],
            greedy.get(group_id),
            images,
        )
        for number, (trajectory_id, group_id) in enumerate(identities)
    ]


def _greedy_returns(turns: pa.Table, rewards: pa.Table) -> dict[str, float]:
    """Map each group to the return of its greedy member, if that ended without an error; rows of both are aligned."""
    is_greedy = pc.equal(turns["origin"], "greedy")
    if not pc.any(is_greedy).as_py():
        return {}
    failed = turns.filter(pc.is_in(turns["status"], value_set=pa.array(ERROR_STATUSES)))["trajectory_id"]
    rows = rewards.filter(
        pc.and_(is_greedy, pc.invert(pc.is_in(turns["trajectory_id"], value_set=failed.combine_chunks())))
    )
    return dict(zip(rows["group_id"].to_pylist(), rows["trajectory_return"].to_pylist(), strict=True))


def _segments(turns: pa.Table, row_trajectory: np.ndarray, spans: Spans | None) -> tuple[list[Segment], np.ndarray]:
    """Cut the tokens of all rows into segments; also return the first row of each segment, ascending."""
    prompts, num_prompt = _flatten(turns["prompt_ids"])
    responses, num_response = _flatten(turns["response_ids"])
    logprobs, _ = _flatten(turns["behaviour_logprobs"])
    lengths = np.stack([num_prompt, num_response], axis=1).ravel()  # prompt, response, prompt, response, ...
    mask = np.repeat(np.tile([False, True], turns.num_rows), lengths)
    token_ids = np.empty(len(mask), dtype=np.int64)
    token_ids[mask], token_ids[~mask] = responses, prompts
    behaviour_logprobs = np.zeros(len(mask), dtype=np.float32)
    behaviour_logprobs[mask] = logprobs
    turn = np.full(len(mask), -1, dtype=np.int64)
    turn[mask] = np.repeat(_numpy(turns["turn"]), num_response)
    kind = np.full(len(mask), UNKNOWN, dtype=np.int8)
    if spans is not None:
        kind[mask] = _kinds(turns, spans)

    starts_anew = _numpy(turns["is_context_start"]) | (np.diff(row_trajectory, prepend=-1) != 0)
    first_rows = np.flatnonzero(starts_anew)
    row_ends = np.cumsum(lengths)[1::2]
    starts = np.append(0, row_ends)[first_rows]
    # no trained token attends to what follows the last response of a segment
    response_ends = np.where(num_response > 0, row_ends, 0)
    stops = np.maximum.reduceat(response_ends, first_rows)
    has_response = stops > starts
    segments = [
        Segment(token_ids[i:j], mask[i:j], behaviour_logprobs[i:j], turn[i:j], kind[i:j])
        for i, j in zip(starts[has_response].tolist(), stops[has_response].tolist(), strict=True)
    ]
    return segments, first_rows[has_response]


def _kinds(turns: pa.Table, spans: Spans) -> np.ndarray:
    """Classify the response tokens of all rows, concatenated, int8."""
    names = ["trajectory_id", "turn", "response_ids", "response", "think", "answer"]
    kinds = [np.empty(0, dtype=np.int8)]
    for row in turns.select(names).to_pylist():
        row_kinds = spans.kinds(row["response_ids"], row["response"], row["think"], row["answer"])
        if row_kinds is None:
            raise LearnerError(
                f"the tokens of trajectory '{row['trajectory_id']}', turn {row['turn']}, do not spell its response, so "
                "reasoning and answer cannot be told apart: set update.loss_on and update.advantage_on to 'all', "
                "and choose an estimator that does not separate them"
            )
        kinds.append(row_kinds)
    return np.concatenate(kinds)


def _states(turns: pa.Table, first_rows: np.ndarray) -> np.ndarray:
    """Code of the environment's state before each row's turn, i.e. after the previous turn. int64 [rows]"""
    after = turns["state_digest"].combine_chunks()
    before = after.take(pa.array(np.maximum(np.arange(turns.num_rows) - 1, 0))).to_pylist()
    for row, digest in zip(
        first_rows.tolist(), turns["initial_state_digest"].take(first_rows).to_pylist(), strict=True
    ):
        before[row] = digest
    return _numpy(pa.array(before).dictionary_encode().indices).astype(np.int64)


def _in_order(table: pa.Table, trajectory_ids: pa.Array) -> tuple[pa.Table, np.ndarray]:
    """Sort by trajectory and turn; also return each row's index into `trajectory_ids` (-1 if it is not among them)."""
    codes = _numpy(pc.fill_null(pc.index_in(table["trajectory_id"], value_set=trajectory_ids), -1))
    turn = _numpy(table["turn"])
    order = np.lexsort((turn, codes))
    is_sorted = bool((order == np.arange(len(order))).all())
    return (table, codes) if is_sorted else (table.take(order), codes[order])


def _check_same_turns(turns: pa.Table, rewards: pa.Table, *row_trajectory: np.ndarray) -> None:
    of_turns, of_rewards = row_trajectory
    same_count = turns.num_rows == rewards.num_rows
    if same_count and (of_turns == of_rewards).all() and (_numpy(turns["turn"]) == _numpy(rewards["turn"])).all():
        return
    strangers = rewards.filter(of_rewards < 0)["trajectory_id"].to_pylist()
    example = f"; trajectory '{strangers[0]}' has rewards but no turns" if strangers else ""
    raise LearnerError(
        f"rewards do not belong to these turns: {rewards.num_rows} rows of rewards for {turns.num_rows} turns"
        f"{example}. Compute the rewards from the same rollout"
    )


def _check_recorded(turns: pa.Table) -> None:
    """Reject trajectories without recorded tokens or log-probs: zeros in their place would be trained on as data."""
    is_unknown = pc.equal(turns["finish_reason"], UNKNOWN_FINISH)
    num_ids, num_logprobs = (pc.list_value_length(turns[name]) for name in ("response_ids", "behaviour_logprobs"))
    for what, is_absent in (("tokens", pc.equal(num_ids, 0)), ("log-probs", pc.less(num_logprobs, num_ids))):
        ids = pc.unique(turns.filter(pc.and_(is_unknown, is_absent))["trajectory_id"]).to_pylist()
        if ids:
            more = f" and {len(ids) - 1} more of those kept" if len(ids) > 1 else ""
            raise LearnerError(
                f"trajectory {quoted(ids[0])}{more} cannot be trained on: imported or recorded from a source without "
                f"the {what} of its responses. It can be imitated (policy.fine_tuning.runs), audited and exported; to "
                "train, import traces that hold prompt ids, response ids and log-probs (docs/exchange.md)"
            )


def _is_kept(turns: pa.Table, selection: pa.Table) -> np.ndarray:
    """Whether each row's group is trained on. bool [rows]"""
    unknown = pc.invert(pc.is_in(turns["group_id"], value_set=selection["group_id"].combine_chunks()))
    if pc.any(unknown).as_py():
        group_id = turns.filter(unknown)["group_id"][0].as_py()
        raise LearnerError(
            f"the selection has no row for group '{group_id}' of the turns. Select from the same rollout"
        )
    kept = selection.filter(selection["kept"])["group_id"].combine_chunks()
    return _numpy(pc.is_in(turns["group_id"], value_set=kept))


def _flatten(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated values of a list column, and the length of each row's list."""
    return _numpy(pc.list_flatten(column)), _numpy(pc.list_value_length(column)).astype(np.int64)


def _numpy(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
