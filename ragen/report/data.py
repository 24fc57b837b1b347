"""`gather`: everything a report shows, read from a store by the run's name.

What is embedded is bounded: curves and filter decisions of every iteration, trajectories of a sample of iterations
(the first, the last, those at which a signal of collapse was raised, and others evenly between), as many as fit.

    runs/<run> + manifests + metrics, selection, turns, rewards -> ReportData -> page
"""

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, TypeVar

import pyarrow as pa

from ragen.diagnostics.collapse import Verdict, diagnose
from ragen.diagnostics.series import Series, metric_series
from ragen.envs.base import EnvironmentSettings
from ragen.report.boards import read_settings, replay_frames
from ragen.store import Store
from ragen.store.runs import Run, RunState, StageKeys
from schemas.datasets import METRICS

MAX_TRAJECTORY_BYTES = 10 * 2**20
"""Compressed size of all embedded trajectories; a third more as base64 in the page."""
MAX_SAMPLED_ITERATIONS = 40
_NUM_READERS = 4

_SHOWN_COLUMNS = [
    "trajectory_id",
    "group_id",
    "env_seed",
    "dynamics_seed",
    "member",
    "turn",
    "observation",
    "response",
    "think",
    "answer",
    "parsed_actions",
    "executed_actions",
    "action_rewards",
    "format_ok",
    "forfeited_actions",
    "finish_reason",
    "status",
    "success",
    "actions_left",
    "initial_state_digest",
    "state_digest",
]
"""Of dataset `turns`; tokens stay in the store."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Decision:
    """What the filter decided on one group.

    Attributes:
        iteration: Updates done before.
        group_id: The group.
        rank: 0 is the best score.
        score: The filter's.
        return_mean: Of the group's valid trajectories.
        success_rate: Of the same.
        is_kept: Was it trained on?
        reason: Why, in words.
    """

    iteration: int
    group_id: str
    rank: int
    score: float
    return_mean: float
    success_rate: float
    is_kept: bool
    reason: str


@dataclass(frozen=True)
class ReportData:
    """A run as a report shows it.

    Attributes:
        run: Name, flow, preset, configuration.
        state: How it stands; None: it has never said.
        store_url: Where it is, without credentials.
        series: Every metric by name and iteration.
        verdict: Is it collapsing, and since when?
        stage_seconds: Stage -> iteration -> wall-clock seconds of the work that made its artifacts, in whichever run
            that was.
        decisions: Of the filter, by iteration and rank.
        trajectories: Iteration -> gzipped JSON of its groups, for the sampled iterations.
        num_iterations: Iterations that were begun.
        num_not_drawn: Embedded trajectories without pictures, because the environment does not repeat them.
    """

    run: Run
    state: RunState | None
    store_url: str
    series: dict[str, Series]
    verdict: Verdict
    stage_seconds: dict[str, Series]
    decisions: list[Decision]
    trajectories: dict[int, bytes]
    num_iterations: int
    num_not_drawn: int


def gather(
    store: Store,
    run: str,
    max_trajectory_bytes: int = MAX_TRAJECTORY_BYTES,
    max_sampled_iterations: int = MAX_SAMPLED_ITERATIONS,
) -> ReportData:
    """Read a run, finished or not.

    Args:
        store: Where it is.
        run: Its name.
        max_trajectory_bytes: Bound of the embedded trajectories, compressed.
        max_sampled_iterations: Bound of the iterations they are from.

    Raises:
        StoreError: If there is no such run, or an artifact of it cannot be read.
    """
    record, iterations = store.runs.get(run), store.runs.iterations(run)
    stages = [(i, stage, keys) for i, by_stage in iterations.items() for stage, keys in by_stage.items()]
    metrics = _side_by_side(lambda key: store.read_table("metrics", key), _keys_of(stages, "metrics"))
    series = metric_series(pa.concat_tables(metrics) if metrics else METRICS.schema.empty_table())
    verdict = diagnose(series)
    signalled = [signal.iteration for signal in verdict.signals]
    playable = [i for i, by_stage in iterations.items() if {"turns", "rewards", "selection"} <= _kinds(by_stage)]
    trajectories, num_not_drawn = _embed(
        (_groups(store, iterations[i], i, record) for i in sampled(playable, signalled, max_sampled_iterations)),
        max_trajectory_bytes,
    )
    return ReportData(
        run=record,
        state=store.runs.state(run),
        store_url=store.url,
        series=series,
        verdict=verdict,
        stage_seconds=_stage_seconds(store, stages),
        decisions=_decisions(store, iterations),
        trajectories=dict(sorted(trajectories.items())),
        num_iterations=len(playable),
        num_not_drawn=num_not_drawn,
    )


def sampled(iterations: Sequence[int], signalled: Iterable[int], limit: int) -> list[int]:
    """Which iterations to embed, the most important first.

    The last, the first, those at which a signal was raised, then repeatedly the middle of the widest gap.

    Args:
        iterations: Those there are, ascending.
        signalled: Those to be preferred; others than `iterations` are ignored.
        limit: At most so many.

    Returns:
        Different iterations; all of them if there are no more than `limit`.
    """
    if not iterations:
        return []
    present = set(iterations)
    chosen = list(dict.fromkeys([iterations[-1], iterations[0], *(i for i in signalled if i in present)]))
    while len(chosen) < min(limit, len(iterations)):
        places = sorted(iterations.index(i) for i in chosen)
        low, high = max(pairwise(places), key=lambda gap: gap[1] - gap[0])
        chosen.append(iterations[(low + high) // 2])
    return chosen[:limit]


def _embed(iterations: Iterable[tuple[int, list[dict[str, Any]], int]], max_bytes: int) -> tuple[dict[int, bytes], int]:
    """Compress iterations, the most important first, until the next one does not fit; the first always does."""
    embedded: dict[int, bytes] = {}
    num_not_drawn = 0
    for iteration, groups, not_drawn in iterations:
        text = json.dumps(groups, ensure_ascii=False, separators=(",", ":"))
        packed = gzip.compress(text.encode("utf-8", "surrogatepass"), mtime=0)
        if embedded and sum(map(len, embedded.values())) + len(packed) > max_bytes:
            break
        embedded[iteration] = packed
        num_not_drawn += not_drawn
    return embedded, num_not_drawn


def _groups(store: Store, stages: StageKeys, iteration: int, run: Run) -> tuple[int, list[dict[str, Any]], int]:
    """All trajectories of an iteration, by group, best score first; and how many of them have no pictures."""
    keys = {kind: key for by_kind in stages.values() for kind, key in by_kind.items()}
    settings = read_settings(run.config["environment"])
    rewards = {
        (row["trajectory_id"], row["turn"]): row for row in store.read_table("rewards", keys["rewards"]).to_pylist()
    }
    turns = store.read_table("turns", keys["turns"], _SHOWN_COLUMNS).to_pylist()
    members: dict[str, list[dict[str, Any]]] = {}
    num_not_drawn = 0
    for _, rows in groupby(turns, key=lambda row: row["trajectory_id"]):
        trajectory, is_drawn = _trajectory(settings, list(rows), rewards)
        members.setdefault(trajectory.pop("group"), []).append(trajectory)
        num_not_drawn += not is_drawn
    selection = sorted(store.read_table("selection", keys["selection"]).to_pylist(), key=lambda row: row["rank"])
    groups = [
        {
            "id": row["group_id"],
            "kept": row["kept"],
            "score": row["score"],
            "mean": row["return_mean"],
            "success": row["success_rate"],
            "reason": row["reason"],
            "members": members.get(row["group_id"], []),
        }
        for row in selection
    ]
    return iteration, groups, num_not_drawn


def _trajectory(
    settings: EnvironmentSettings, rows: list[dict[str, Any]], rewards: dict[tuple[str, int], dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """One trajectory as the page's script reads it, and whether its pictures could be made."""
    frames = replay_frames(settings, rows)
    paid = [rewards[row["trajectory_id"], row["turn"]] for row in rows]
    turns = [
        {
            "observation": row["observation"],
            "response": row["response"],
            "think": row["think"],
            "answer": row["answer"],
            "named": row["parsed_actions"],
            "executed": row["executed_actions"],
            "rewards": row["action_rewards"],
            "components": dict(zip(reward["component_names"], reward["component_values"], strict=True)),
            "total": reward["total"],
            "status": row["status"],
            "finish": row["finish_reason"],
            "forfeited": row["forfeited_actions"],
            "left": row["actions_left"],
            "frames": frames[number] if frames else [],
        }
        for number, (row, reward) in enumerate(zip(rows, paid, strict=True))
    ]
    trajectory = {
        "id": rows[0]["trajectory_id"],
        "group": rows[0]["group_id"],
        "member": rows[0]["member"],
        "return": paid[0]["trajectory_return"],
        "valid": paid[0]["is_valid"],
        "success": any(row["success"] for row in rows),
        "turns": turns,
    }
    return trajectory, frames is not None


def _decisions(store: Store, iterations: dict[int, StageKeys]) -> list[Decision]:
    keys = [(i, key) for i, by_stage in iterations.items() for k in by_stage.values() if (key := k.get("selection"))]
    tables = _side_by_side(lambda key: store.read_table("selection", key), [key for _, key in keys])
    return [
        Decision(
            iteration=iteration,
            group_id=row["group_id"],
            rank=row["rank"],
            score=row["score"],
            return_mean=row["return_mean"],
            success_rate=row["success_rate"],
            is_kept=row["kept"],
            reason=row["reason"],
        )
        for (iteration, _), table in zip(keys, tables, strict=True)
        for row in sorted(table.to_pylist(), key=lambda row: row["rank"])
    ]


def _stage_seconds(store: Store, stages: list[tuple[int, str, dict[str, str]]]) -> dict[str, Series]:
    """A stage's seconds are those of its artifact that was written last: its work began before the first of them."""

    def longest(stage: tuple[int, str, dict[str, str]]) -> float | None:
        written = (store.manifest(kind, key).provenance.get("seconds") for kind, key in stage[2].items())
        return max((float(seconds) for seconds in written if seconds is not None), default=None)

    seconds: dict[str, Series] = {}
    for (iteration, stage, _), value in zip(stages, _side_by_side(longest, stages), strict=True):
        if value is not None:
            seconds.setdefault(stage, {})[iteration] = value
    return seconds


def _keys_of(stages: list[tuple[int, str, dict[str, str]]], kind: str) -> list[str]:
    return list(dict.fromkeys(keys[kind] for _, _, keys in stages if kind in keys))


def _kinds(by_stage: StageKeys) -> set[str]:
    return {kind for keys in by_stage.values() for kind in keys}


def _side_by_side(read: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Read many small artifacts at once: on object storage each costs a round trip."""
    with ThreadPoolExecutor(_NUM_READERS) as readers:
        return list(readers.map(read, items))
