"""What a search asks for, and the commands that find the same in a terminal.

an address's fields -> Query -> searching.search
                             -> as_sql, commands
"""

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.dataclasses import dataclass

NUM_LISTED = 500
"""Hits of an answer unless more are asked for; all are counted."""
_MAX_LISTED = 100_000
_MAX_TEXT = 2_000

_Text = Annotated[str, StringConstraints(max_length=_MAX_TEXT, pattern=r"^[^\x00]*$")]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_IDENTITY = "run, iteration, trajectory_id"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Query:
    """What is searched for; None and '' mean: whatever.

    Attributes:
        text: Part of a response or an observation; upper and lower case are the same.
        success: Whether the trajectory was successful.
        kept: Whether the filter kept its group.
        status: The worst status of its turns.
        first: First iteration.
        last: Last iteration.
        least_turns: Fewest turns.
        most_turns: Most turns.
        low: Lowest return.
        high: Highest return.
        component: Name of a component of its reward.
        component_low: Lowest sum of this component over its turns.
        component_high: Highest such sum.
        where: Condition in SQL on the columns of the view `trajectories`.
        offset: Number of hits to pass over, which are counted all the same.
        limit: Most hits that are returned.
    """

    text: _Text = ""
    success: bool | None = None
    kept: bool | None = None
    status: _Text = ""
    first: int | None = None
    last: int | None = None
    least_turns: int | None = None
    most_turns: int | None = None
    low: _Number | None = None
    high: _Number | None = None
    component: _Text = ""
    component_low: _Number | None = None
    component_high: _Number | None = None
    where: _Text = ""
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED)] = NUM_LISTED


def as_sql(query: Query) -> str:
    """Return the query of `starpo sql` that finds the same trajectories, the latest iteration first."""
    columns, joined = [_IDENTITY.removeprefix("run, "), "success", "trajectory_return", "kept"], ""
    conditions = ["not is_reused"]
    if query.text:
        contains = " or ".join(
            f"contains(lower({name}), lower({_literal(query.text)}))" for name in ("response", "observation")
        )
        joined += f" join (select {_IDENTITY}, min(turn) as turn from turns where {contains} group by all)"
        joined += f" using ({_IDENTITY})"
        columns.append("turn")
    if query.component:
        value = f"component_values[list_position(component_names, {_literal(query.component)})]"
        joined += f" join (select {_IDENTITY}, sum({value}) as component from rewards group by all)"
        joined += f" using ({_IDENTITY})"
        columns.append("component")
        conditions.append("component is not null")
        conditions += _within("component", query.component_low, query.component_high)
    conditions += [
        name if value else f"not {name}"
        for name, value in (("success", query.success), ("kept", query.kept))
        if value is not None
    ]
    conditions += [f"status = {_literal(query.status)}"] if query.status else []
    conditions += _within("iteration", query.first, query.last)
    conditions += _within("num_turns", query.least_turns, query.most_turns)
    conditions += _within("trajectory_return", query.low, query.high)
    conditions += [f"({query.where}\n)" if "--" in query.where else f"({query.where})"] if query.where else []
    order = "order by iteration desc, trajectory_id"
    return f"select {', '.join(columns)} from trajectories{joined} where {' and '.join(conditions)} {order}"


def commands(run: str, store: str, query: Query, last: int) -> list[list[str]]:
    """Return the words of the commands that find the same in a terminal: by SQL, and where it can, as an export.

    Args:
        run: Name of the run.
        store: URL of the store.
        query: What is searched for.
        last: Last iteration of the run.
    """
    by_sql = [["starpo", "sql", run, as_sql(query), "--store", store]]
    exportable = ("success", "kept", "first", "last", "low", "high", "offset", "limit")
    if query != Query(**{name: getattr(query, name) for name in exportable}) or False in (query.success, query.kept):
        return by_sql
    chosen = ["success"] * bool(query.success) + ["kept"] * bool(query.kept)
    chosen += [f"return{sign}{bound!r}" for sign, bound in ((">=", query.low), ("<=", query.high)) if bound is not None]
    first = 0 if query.first is None else query.first
    until = last if query.last is None else min(query.last, last)
    iterations = [] if (query.first, query.last) == (None, None) else ["--iterations", f"{first}-{until}"]
    where = [word for condition in chosen for word in ("--where", condition)]
    export = ["starpo", "export", run, "--format", "messages", *iterations, *where, "-o", "hits", "--store", store]
    return [*by_sql, export] if first <= until else by_sql


def _within(column: str, low: float | None, high: float | None) -> list[str]:
    return [f"{column} >= {low!r}"] * (low is not None) + [f"{column} <= {high!r}"] * (high is not None)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
