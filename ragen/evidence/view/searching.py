"""Search over all stored rollouts of a run: text, outcome, status, turns, return, reward component, filter, and SQL.

turns (a few columns), rewards, selection of every rollout -> Hits
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.reading import Place, side_by_side
from starpo.ragen.evidence.report.data import RunData
from starpo.ragen.evidence.view.conditions import trajectories_where
from starpo.ragen.evidence.view.query import Query, as_sql, commands
from starpo.ragen.store import Store
from starpo.schemas.datasets import STATUSES

_AROUND = 60
"""Characters shown on each side of what was searched for."""
_TEXTS = ("response", "observation")

Row = dict[str, Any]


def search(store: Store, data: RunData, query: Query) -> dict[str, Any]:
    """Search the rollouts of a run.

    Returns:
        JSON: `hits`, those from `query.offset` on, at most `query.limit`, the latest iteration first; `num_hits`;
        `num_searched`, both of trajectories; `unread`, iterations whose rollout cannot be read; `commands`, the words
        of those that find the same in a terminal.

    Raises:
        QueryError: If the condition in SQL is wrong, takes too long or too much memory, or would do more than read.
    """
    wanted = [
        iteration
        for iteration in reversed(data.collected)
        if (query.first is None or iteration >= query.first) and (query.last is None or iteration <= query.last)
    ]
    kept = {(decision.iteration, decision.group_id): decision.is_kept for decision in data.decisions}
    chosen = None
    if query.where:
        condition = as_sql(Query(where=query.where, first=query.first, last=query.last))
        chosen = trajectories_where(store, data.run.name, condition)
    hits: list[Row] = []
    num_hits = num_searched = 0
    unread: list[int] = []

    def read(iteration: int) -> tuple[pa.Table, pa.Table] | None:
        places = data.places_of(iteration)
        columns = ("trajectory_id", "group_id", "turn", "success", "status", *_TEXTS)
        components = ("component_names", "component_values") if query.component else ()
        try:
            turns = _columns(store, places, "turns", columns)
            return turns, _columns(store, places, "rewards", ("trajectory_id", "trajectory_return", *components))
        except (StarPOError, pa.ArrowException, OSError):
            return None

    for iteration, tables in zip(wanted, side_by_side(store, read, wanted), strict=True):
        if tables is None:
            unread.append(iteration)
            continue
        matching, num_trajectories = _matching(*tables, query)
        num_searched += num_trajectories
        for row in matching:
            is_kept = kept.get((iteration, row["group"]))
            is_other = query.kept is not None and is_kept is not query.kept
            if is_other or (chosen is not None and row["trajectory"] not in chosen.get(iteration, ())):
                continue
            num_hits += 1
            if query.offset < num_hits <= query.offset + query.limit:
                place = {} if "place" not in row else _place(tables[0], row.pop("place"), query.text)
                hits.append({"iteration": iteration, "kept": is_kept, **row, **place})
    return {
        "hits": hits,
        "num_hits": num_hits,
        "num_searched": num_searched,
        "unread": sorted(unread),
        "commands": commands(data.run.name, store.url, query, max(data.collected, default=0)),
    }


def _columns(store: Store, places: Sequence[Place], kind: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of the datasets of one kind in an iteration, of which it has several with several attempts."""
    files = [part for place in places if place.kind == kind for part in store.parts(kind, place.key)]
    tables = [pq.ParquetFile(file).read(list(columns), use_threads=False) for file in files]
    return pa.concat_tables(tables) if tables else pa.table({name: [] for name in columns})


def _matching(turns: pa.Table, rewards: pa.Table, query: Query) -> tuple[list[Row], int]:
    """Return the trajectories that match, each with the row of its first turn with the text, and the number of all."""
    worst = pc.index_in(turns["status"], value_set=pa.array(STATUSES))
    played = (
        turns.append_column("worst", worst)
        .group_by("trajectory_id", use_threads=False)
        .aggregate([("group_id", "min"), ("success", "any"), ("turn", "count"), ("worst", "max")])
    )
    places = _first_places(turns, query.text) if query.text else None
    returns = dict(zip(rewards["trajectory_id"].to_pylist(), rewards["trajectory_return"].to_pylist(), strict=True))
    components = _component_sums(rewards, query.component) if query.component else None
    rows: list[Row] = []
    names = ("trajectory_id", "group_id_min", "success_any", "turn_count", "worst_max")
    for trajectory, group, success, num_turns, status in zip(*(played[n].to_pylist() for n in names), strict=True):
        row = {"trajectory": trajectory, "group": group, "success": success, "return": returns.get(trajectory)}
        row["turns"] = num_turns
        if components is not None:
            row["component"] = components.get(trajectory)
        if (
            (places is None or trajectory in places)
            and (query.success is None or success is query.success)
            and (not query.status or (status is not None and STATUSES[status] == query.status))
            and _is_within(num_turns, query.least_turns, query.most_turns)
            and _is_within(row["return"], query.low, query.high)
            and (components is None or trajectory in components)
            and _is_within(row.get("component"), query.component_low, query.component_high)
        ):
            rows.append(row if places is None else {**row, "place": places[trajectory]})
    return rows, played.num_rows


def _is_within(value: float | None, low: float | None, high: float | None) -> bool:
    return (low is None or (value is not None and value >= low)) and (
        high is None or (value is not None and value <= high)
    )


def _first_places(turns: pa.Table, text: str) -> dict[str, int]:
    """Map each trajectory with the text to the row of the first turn that has it."""
    contains = [pc.match_substring(turns[name], text, ignore_case=True) for name in _TEXTS]
    places = pc.indices_nonzero(pc.fill_null(pc.or_kleene(*contains), False))
    first: dict[str, int] = {}
    for trajectory, place in zip(turns["trajectory_id"].take(places).to_pylist(), places.to_pylist(), strict=True):
        first.setdefault(trajectory, place)
    return first


def _component_sums(rewards: pa.Table, component: str) -> dict[str, float]:
    """Sum a component of the reward over the turns of each trajectory that has it."""
    names = rewards["component_names"].combine_chunks()
    is_it = pc.equal(pc.list_flatten(names), component)
    values = pc.list_flatten(rewards["component_values"].combine_chunks()).filter(is_it)
    trajectories = rewards["trajectory_id"].take(pc.list_parent_indices(names).filter(is_it))
    table = pa.table({"trajectory": trajectories, "value": values})
    sums = table.group_by("trajectory", use_threads=False).aggregate([("value", "sum")])
    return dict(zip(sums["trajectory"].to_pylist(), sums["value_sum"].to_pylist(), strict=True))


def _place(turns: pa.Table, row: int, text: str) -> Row:
    """Return the number of a turn, and an excerpt: what stands before the text, the text as written, what follows."""
    return {"turn": turns["turn"][row].as_py(), "excerpt": _excerpt(turns, row, text)}


def _excerpt(turns: pa.Table, row: int, text: str) -> list[str]:
    for name in _TEXTS:
        text_of_turn = turns[name][row].as_py() or ""
        at = text_of_turn.lower().find(text.lower())
        if at >= 0:
            end = at + len(text)
            return [text_of_turn[max(0, at - _AROUND) : at], text_of_turn[at:end], text_of_turn[end : end + _AROUND]]
    return ["", text, ""]  # letters whose lower case is longer
