"""The return of every continuation, by the run's own reward.

turns of the prefix + turns of the continuation --stage reward's components--> totals -> return from the start on
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.rollout.branches import continuation_id
from starpo.ragen.agents.rollout.episode import describe_error
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import ERROR_STATUSES

Start = tuple[str, int, int, int]
"""Where continuations begin, and their numbers: trajectory, turn, first, stop."""


@dataclass(frozen=True)
class Outcomes:
    """What continuations came to, in their order. [num_continuations]

    Attributes:
        returns: Undiscounted return from the start on. float64
        successes: Whether the task's goal was reached. bool
        num_tokens: Tokens sampled. int64
    """

    returns: np.ndarray
    successes: np.ndarray
    num_tokens: np.ndarray


def outcomes(
    played: pa.Table,
    stored: pa.Table,
    starts: Sequence[Start],
    reward: RewardConfig,
    types: Mapping[str, str] | None,
) -> Outcomes:
    """Return what continuations came to.

    Args:
        played: Their turns, those of a continuation together, in the order of `starts`.
        stored: Dataset `turns` with those of the trajectories that they continue, of each in order of time.
        starts: Where they begin.
        reward: Settings of the reward; normalisation does not enter a return.
        types: As for `compute_rewards`.

    Raises:
        EnvironmentFault: If the environment failed in one of them.
        RewardError: As for `compute_rewards`.
    """
    failed = played.filter(pc.is_in(played["status"], pa.array(ERROR_STATUSES)))
    if failed.num_rows:
        name, info = failed["trajectory_id"][0].as_py(), failed["info"][0].as_py()
        raise EnvironmentFault(f"continuation {name} failed, so its return is unknown: {describe_error(info)}")
    first = np.flatnonzero(_changes(played["trajectory_id"]))
    totals = _totals(played, stored, starts, reward, types)
    lengths = pc.list_value_length(played["response_ids"]).to_numpy()
    return Outcomes(
        np.add.reduceat(totals, first),
        np.logical_or.reduceat(played["success"].to_numpy(zero_copy_only=False), first),
        np.add.reduceat(lengths.astype(np.int64), first),
    )


def _totals(
    played: pa.Table,
    stored: pa.Table,
    starts: Sequence[Start],
    reward: RewardConfig,
    types: Mapping[str, str] | None,
) -> np.ndarray:
    """Return the reward of every turn played, computed with the turns before it. float64 [played.num_rows]"""
    is_first = _changes(stored["trajectory_id"])
    place = dict(zip(stored["trajectory_id"].filter(is_first).to_pylist(), np.flatnonzero(is_first), strict=True))
    rows: list[np.ndarray] = []
    names: list[str] = []
    for trajectory_id, turn, begin, stop in starts:
        for number in range(begin, stop):
            rows.append(place[trajectory_id] + np.arange(turn))
            names += [continuation_id(trajectory_id, turn, number)] * turn
    prefixes = stored.take(np.concatenate([np.zeros(0, np.int64), *rows]))
    at = prefixes.schema.get_field_index("trajectory_id")
    prefixes = prefixes.set_column(at, prefixes.schema.field(at), pa.array(names, pa.string()))
    plain = reward.model_copy(update={"normalisation": "none"})
    rewards = compute_rewards(pa.concat_tables([prefixes, played]), plain, types=types)
    return rewards["total"].to_numpy()[prefixes.num_rows :]


def _changes(names: pa.ChunkedArray) -> np.ndarray:
    """Mark where another trajectory begins. bool [rows]"""
    codes = names.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.append(True, codes[1:] != codes[:-1])[: len(codes)]
