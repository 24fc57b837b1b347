"""Search over all stored rollouts of a run: text in what was answered and observed, outcome, return, and the filter.

turns (a few columns), rewards, selection of every rollout -> Hits
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.reading import Place, side_by_side
from starpo.ragen.evidence.report.data import RunData
from starpo.ragen.store import Store

MAX_HITS = 500
"""Hits that are listed; all are counted."""
_AROUND = 60
"""Characters shown on each side of what was searched for."""
_TEXTS = ("response", "observation")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Query:
    """What is searched for; None and '' mean: whatever.

    Attributes:
        text: Part of a response or an observation; upper and lower case are the same.
        success: Whether the trajectory was successful.
        kept: Whether the filter kept its group.
        first: First iteration.
        last: Last iteration.
        low: Lowest return.
        high: Highest return.
    """

    text: str = ""
    success: bool | None = None
    kept: bool | None = None
    first: int | None = None
    last: int | None = None
    low: float | None = None
    high: float | None = None


def search(store: Store, data: RunData, query: Query) -> dict[str, Any]:
    """Search the rollouts of a run.

    Returns:
        JSON: `hits`, the first `MAX_HITS`, the latest iteration first; `num_hits`; `num_searched`, both of
        trajectories; `unread`, iterations whose rollout cannot be read.
    """
    wanted = [
        iteration
        for iteration in reversed(data.collected)
        if (query.first is None or iteration >= query.first) and (query.last is None or iteration <= query.last)
    ]
    kept = {(decision.iteration, decision.group_id): decision.is_kept for decision in data.decisions}
    hits: list[dict[str, Any]] = []
    num_hits = num_searched = 0
    unread: list[int] = []

    def read(iteration: int) -> tuple[pa.Table, pa.Table] | None:
        places = data.places_of(iteration)
        try:
            turns = _columns(store, places, "turns", ("trajectory_id", "group_id", "turn", "success", *_TEXTS))
            return turns, _columns(store, places, "rewards", ("trajectory_id", "trajectory_return"))
        except (StarPOError, pa.ArrowException, OSError):
            return None

    for iteration, tables in zip(wanted, side_by_side(store, read, wanted), strict=True):
        if tables is None:
            unread.append(iteration)
            continue
        returns = dict(zip(*(tables[1][name].to_pylist() for name in tables[1].column_names), strict=True))
        matching, num_trajectories = _matching(tables[0], query, returns)
        num_searched += num_trajectories
        for row in matching:
            is_kept = kept.get((iteration, row["group"]))
            if query.kept is not None and is_kept is not query.kept:
                continue
            num_hits += 1
            if len(hits) < MAX_HITS:
                hits.append({"iteration": iteration, "kept": is_kept, **row})
    return {"hits": hits, "num_hits": num_hits, "num_searched": num_searched, "unread": sorted(unread)}


def _columns(store: Store, places: Sequence[Place], kind: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of the datasets of one kind in an iteration, of which it has several with several attempts."""
    files = [part for place in places if place.kind == kind for part in store.parts(kind, place.key)]
    tables = [pq.ParquetFile(file).read(list(columns), use_threads=False) for file in files]
    return pa.concat_tables(tables) if tables else pa.table({name: [] for name in columns})


def _matching(turns: pa.Table, query: Query, returns: Mapping[str, float]) -> tuple[list[dict[str, Any]], int]:
    """Return the trajectories that match, in their order, each with the first turn that does; and the number of all."""
    by_trajectory = turns.group_by("trajectory_id", use_threads=False).aggregate(
        [("success", "any"), ("turn", "count")]
    )
    outcome = dict(zip(*(by_trajectory[name].to_pylist() for name in ("trajectory_id", "success_any")), strict=True))
    if query.text:
        contains = [pc.match_substring(turns[name], query.text, ignore_case=True) for name in _TEXTS]
        turns = turns.filter(pc.fill_null(pc.or_kleene(*contains), False))
    rows: dict[str, dict[str, Any]] = {}
    for trajectory, group, turn, number in zip(
        *(turns[name].to_pylist() for name in ("trajectory_id", "group_id", "turn")), range(turns.num_rows), strict=True
    ):
        value, is_success = returns.get(trajectory), bool(outcome[trajectory])
        is_within = (query.low is None or (value is not None and value >= query.low)) and (
            query.high is None or (value is not None and value <= query.high)
        )
        if trajectory in rows or not is_within or (query.success is not None and is_success is not query.success):
            continue
        rows[trajectory] = {"trajectory": trajectory, "group": group, "success": is_success, "return": value}
        if query.text:
            rows[trajectory] |= {"turn": turn, "excerpt": _excerpt(turns, number, query.text)}
    return list(rows.values()), len(outcome)


def _excerpt(turns: pa.Table, row: int, text: str) -> list[str]:
    """Return what stands before the text, the text as it is written there, and what follows."""
    for name in _TEXTS:
        text_of_turn = turns[name][row].as_py() or ""
        at = text_of_turn.lower().find(text.lower())
        if at >= 0:
            end = at + len(text)
            return [text_of_turn[max(0, at - _AROUND) : at], text_of_turn[at:end], text_of_turn[end : end + _AROUND]]
    return ["", text, ""]  # letters whose lower case is longer
