"""What every dataset must obey beyond its columns: rules as polars expressions, gathered into pandera models.

Two sorts: a *row rule* looks at one row, and can be checked batch by batch; an *across rule* compares the rows of a
trajectory, a group or the whole dataset, and is checked once, on the few columns that it names, of all rows. Nothing
here relies on the order of rows.

Rules that hold for every dataset (columns, types, nulls, nulls inside lists, unique keys) are derived from
`schemas.datasets`; this file states the rest.

    Dataset + rules -> row_model, across_model (pandera) -> schemas.validate
"""

from dataclasses import dataclass
from functools import cache

import polars as pl
import pyarrow as pa
from pandera.polars import Check, Column, DataFrameSchema, PolarsData
from polars import col

from schemas.datasets import DATASETS, ERROR_STATUSES, FINISH_REASONS, STATUSES

SCORE_METRICS = ("std", "mean", "entropy", "length")
"""What groups can be scored by."""

_TOLERANCE = 1e-9
"""Relative tolerance of sums of float64: the order of addition is free."""


@dataclass(frozen=True)
class Rule:
    """Something that every row must obey.

    Attributes:
        columns: Columns concerned; the first is the one that a message names.
        text: The rule as a sentence, in words.
        holds: Boolean; null counts as obeyed (null values have a rule of their own). Without `within` one value a row,
            or one for all rows; with it one value for the rows that agree in those columns.
        within: Columns whose equal values make rows belong together.
    """

    columns: tuple[str, ...]
    text: str
    holds: pl.Expr
    within: tuple[str, ...] = ()

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """One Boolean a row, never null."""
        holds = self.holds.over(*self.within) if self.within else self.holds
        return frame.with_columns(_holds=holds.fill_null(True)).get_column("_holds")


@cache
def row_rules(kind: str) -> tuple[Rule, ...]:
    """Rules that look at one row: those of all datasets, then those of this kind."""
    columns = DATASETS[kind].columns
    lists = [c.name for c in columns if pa.types.is_list(c.type)]
    return (
        *(Rule((c.name,), "is never null", col(c.name).is_not_null()) for c in columns if not c.nullable),
        *(Rule((n,), "holds no nulls inside its lists", _every(n, pl.element().is_not_null())) for n in lists),
        *_ROW_RULES[kind],
    )


@cache
def across_rules(kind: str) -> tuple[Rule, ...]:
    """Rules that compare rows: the key is unique, then those of this kind."""
    key = DATASETS[kind].key
    return (Rule(key, "identify a row: no two rows have the same", pl.struct(*key).is_unique()), *_ACROSS_RULES[kind])


def across_columns(kind: str) -> tuple[str, ...]:
    """Columns that must be kept of all rows until the end."""
    return tuple(dict.fromkeys((*DATASETS[kind].key, *(name for rule in across_rules(kind) for name in rule.columns))))


@cache
def row_model(kind: str) -> DataFrameSchema:
    """Pandera model of a dataset's rows: exact columns in their order, types, and all row rules."""
    dataset = DATASETS[kind]
    types = pl.DataFrame(pl.from_arrow(dataset.schema.empty_table())).schema
    columns = {c.name: Column(types[c.name], nullable=True) for c in dataset.columns}  # nulls: among the row rules
    return DataFrameSchema(columns, checks=_check(row_rules(kind)), strict=True, ordered=True, name=kind)


@cache
def across_model(kind: str) -> DataFrameSchema:
    """Pandera model of the columns in `across_columns`, of all rows together."""
    return DataFrameSchema(checks=_check(across_rules(kind)), name=kind)


def _check(rules: tuple[Rule, ...]) -> Check:
    """All rules as one check, in one pass a grouping; whoever wants to know which one failed asks each `Rule`."""

    def obeys(data: PolarsData) -> bool:
        verdicts = []
        for within in dict.fromkeys(rule.within for rule in rules):
            holds = [rule.holds.fill_null(True).alias(str(i)) for i, rule in enumerate(rules) if rule.within == within]
            rows = data.lazyframe.group_by(within).agg(holds) if within else data.lazyframe.select(holds)
            verdicts.append(rows.select(pl.all_horizontal(pl.exclude(within)).all()))
        return all(verdict.item() for verdict in pl.collect_all(verdicts))

    return Check(obeys, name="obeys every rule")


def _every(name: str, holds: pl.Expr) -> pl.Expr:
    return col(name).list.eval(holds).list.all()


def _one_of(name: str, allowed: tuple[str, ...]) -> Rule:
    return Rule((name,), f"is one of {', '.join(allowed)}", col(name).is_in(allowed))


def _at_least(name: str, low: float) -> Rule:
    return Rule((name,), f"is at least {low:g}", col(name) >= low)


def _share(name: str) -> Rule:
    return Rule((name,), "lies between 0 and 1", col(name).is_between(-_TOLERANCE, 1 + _TOLERANCE))


def _finite(*names: str) -> list[Rule]:
    return [Rule((name,), "is finite", col(name).is_finite()) for name in names]


def _named(*names: str) -> list[Rule]:
    return [Rule((name,), "is not empty", col(name).str.len_bytes() > 0) for name in names]


def _aligned(name: str, *others: str) -> list[Rule]:
    lengths = col(name).list.len()
    return [Rule((other, name), f"has as many items as {name}", col(other).list.len() == lengths) for other in others]


def _digest(name: str) -> Rule:
    return Rule((name,), "is 16 hexadecimal digits", col(name).str.contains("^[0-9a-f]{16}$"))


def _close(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Equal but for rounding; sums that are not finite have a rule of their own."""
    return ((left - right).abs() <= _TOLERANCE * pl.max_horizontal(left.abs(), right.abs(), pl.lit(1.0))) | ~(
        left.is_finite() & right.is_finite()
    )


def _same(name: str, *within: str) -> Rule:
    values = col(name).to_physical()  # of a text its number, which is all that equality needs
    return Rule(
        (name, *within), f"is the same in all rows of a {' and '.join(within)}", values.min() == values.max(), within
    )


def _counted(name: str, *within: str) -> Rule:
    """Each of 0 .. n-1 occurs once, whatever the order; that none occurs twice is left to the key's rule."""
    complete = (col(name).min() == 0) & (col(name).max() + 1 == pl.len())
    return Rule((name, *within), f"counts 0, 1, 2, ... without gaps in every {' and '.join(within)}", complete, within)


_is_error = col("status").is_in(ERROR_STATUSES)
_has_response = col("response_ids").list.len() > 0
_num_executed = col("executed_actions").list.len()
_is_end = col("terminated") | col("truncated")

_EPISODE_RULES = (*_named("env"), _at_least("env_seed", 0), _digest("initial_state_digest"))

_TURN_ROWS = (
    *_named("trajectory_id", "group_id"),
    *_EPISODE_RULES,
    *(_at_least(name, 0) for name in ("dynamics_seed", "sampling_seed", "member", "turn", "forfeited_actions")),
    _at_least("actions_left", 0),
    Rule(("action_cost",), "is finite and at most 0", col("action_cost").is_finite() & (col("action_cost") <= 0)),
    _one_of("status", STATUSES),
    _one_of("finish_reason", FINISH_REASONS),
    _digest("state_digest"),
    Rule(("prompt_ids",), "holds token ids of at least 0", _every("prompt_ids", pl.element() >= 0)),
    Rule(("response_ids",), "holds token ids of at least 0", _every("response_ids", pl.element() >= 0)),
    *_aligned("response_ids", "behaviour_logprobs"),
    Rule(
        ("behaviour_logprobs",),
        "holds finite numbers of at most 0",
        _every("behaviour_logprobs", pl.element().is_finite() & (pl.element() <= 0)),
    ),
    *_aligned("executed_actions", "action_rewards", "action_effective"),
    Rule(("action_rewards",), "holds finite numbers", _every("action_rewards", pl.element().is_finite())),
    Rule(
        ("executed_actions", "parsed_actions"),
        "is a prefix of parsed_actions",
        col("parsed_actions").list.head(_num_executed) == col("executed_actions"),
    ),
    Rule(
        ("actions_left", "executed_actions", "forfeited_actions"),
        "covers the actions that were executed and forfeited",
        _num_executed.cast(pl.Int64) + col("forfeited_actions") <= col("actions_left"),
    ),
    Rule(("is_context_start", "turn"), "is true on the first turn", col("is_context_start") | (col("turn") != 0)),
    Rule(
        ("prompt_ids", "response_ids"),
        "is not empty where there is a response",
        (col("prompt_ids").list.len() > 0) | ~_has_response,
    ),
    Rule(
        ("finish_reason", "response_ids"),
        "is 'none' exactly where response_ids is empty",
        (col("finish_reason") == "none") == ~_has_response,
    ),
    Rule(
        ("format_ok", "response_ids", "parsed_actions"),
        "is true only where there is a response that names an action",
        ~col("format_ok") | (_has_response & (col("parsed_actions").list.len() > 0)),
    ),
    Rule(
        ("executed_actions", "response_ids"),
        "is empty where there is no response",
        (_num_executed == 0) | _has_response,
    ),
    Rule(
        ("status", "format_ok"),
        "is 'ok' only with format_ok, and 'format_error' or 'truncated' only without",
        _is_error | ((col("status") == "ok") == col("format_ok")),
    ),
    Rule(
        ("status", "finish_reason"),
        "is 'ok' or 'format_error' only where there is a response, and 'truncated' only where there is none",
        _is_error | ((col("status") == "truncated") == (col("finish_reason") == "none")),
    ),
    Rule(
        ("truncated", "status"),
        "is true where the status is 'truncated' or 'timeout'",
        col("truncated") | ~col("status").is_in(("truncated", "timeout")),
    ),
    Rule(
        ("forfeited_actions", "status", "executed_actions"),
        "is 0 where an action was executed, or the status is 'ok'",
        (col("forfeited_actions") == 0) | ((col("status") != "ok") & (_num_executed == 0)),
    ),
    Rule(("info",), "is a JSON object", col("info").str.starts_with("{") & col("info").str.ends_with("}")),
)

_TURN_TABLE = (
    *(_same(name, "trajectory_id") for name in ("group_id", "member", "dynamics_seed", "sampling_seed")),
    _counted("turn", "trajectory_id"),
    Rule(
        ("terminated", "turn", "truncated", "trajectory_id"),
        "and truncated are true only on the last turn of a trajectory",
        pl.when(_is_end).then(col("turn")).min() == col("turn").max(),
        ("trajectory_id",),
    ),
    Rule(
        ("truncated", "turn", "terminated", "status", "trajectory_id"),
        "or terminated is true on the last turn of a trajectory, unless an error ended it",
        pl.when(_is_end | _is_error).then(col("turn")).max().fill_null(-1) == col("turn").max(),
        ("trajectory_id",),
    ),
    *(_same(name, "group_id") for name in ("env", "env_seed", "initial_state_digest")),
    Rule(
        ("trajectory_id", "group_id", "member", "turn"),
        "is one for each member of a group",
        pl.struct("group_id", "member", "turn").is_unique(),
    ),
    Rule(
        ("member", "group_id", "turn"),
        "counts 0, 1, 2, ... without gaps in every group_id",
        (col("member").min() == 0) & (col("member").max() + 1 == (col("turn") == 0).sum()),
        ("group_id",),
    ),
    Rule(
        ("member", "group_id"),
        "counts equally far in every group: all groups have as many trajectories",
        col("member").max().over("group_id") == col("member").max(),
    ),
)

_REWARD_ROWS = (
    *_named("trajectory_id", "group_id"),
    _at_least("turn", 0),
    *_aligned("component_names", "component_values"),
    Rule(
        ("component_names",),
        "names each component once",
        col("component_names").list.n_unique() == col("component_names").list.len(),
    ),
    Rule(("component_values",), "holds finite numbers", _every("component_values", pl.element().is_finite())),
    *_finite("total", "trajectory_return", "normalised_return"),
    Rule(
        ("total", "component_values"),
        "is the sum of component_values",
        _close(col("total"), col("component_values").list.sum()),
    ),
)

_REWARD_TABLE = (
    *(_same(n, "trajectory_id") for n in ("group_id", "trajectory_return", "normalised_return", "is_valid")),
    _counted("turn", "trajectory_id"),
    Rule(
        ("trajectory_return", "total", "trajectory_id"),
        "is the sum of total over the trajectory's turns",
        _close(col("trajectory_return").max(), col("total").sum()),
        ("trajectory_id",),
    ),
)

_STATISTICS = ("score", "return_std", "return_mean", "return_max", "return_min", "success_rate")

_SELECTION_ROWS = (
    *_named("group_id", "env", "strategy", "reason"),
    _at_least("env_seed", 0),
    _at_least("num_trajectories", 1),
    Rule(
        ("num_valid", "num_trajectories"),
        "lies between 0 and num_trajectories",
        (col("num_valid") >= 0) & (col("num_valid") <= col("num_trajectories")),
    ),
    _one_of("metric", SCORE_METRICS),
    *_finite(*_STATISTICS),
    _at_least("return_std", 0),
    _share("success_rate"),
    Rule(
        ("return_mean", "return_min", "return_max"),
        "lies between return_min and return_max",
        (col("return_min") <= col("return_max"))
        & (_close(col("return_mean"), col("return_mean").clip(col("return_min"), col("return_max")))),
    ),
    *(
        Rule((name, "num_valid"), "is 0 where num_valid is 0", (col("num_valid") > 0) | (col(name) == 0))
        for name in _STATISTICS
    ),
)

_SELECTION_TABLE = (
    Rule(
        ("rank",),
        "is a permutation of 0, 1, 2, ...",
        col("rank").is_unique() & (col("rank") >= 0) & (col("rank") < pl.len()),
    ),
)

_SAMPLE_ROWS = (
    *_named("trajectory_id", "group_id"),
    _at_least("num_tokens", 0),
    *_finite("trajectory_return", "advantage", "mean_ratio", "clip_fraction", "kl_behaviour", "kl_reference"),
    *_finite("entropy", "old_behaviour_gap", "loss_share"),
    _at_least("mean_ratio", 0),
    _at_least("old_behaviour_gap", 0),
    _share("clip_fraction"),
    _share("loss_share"),
)

_SAMPLE_TABLE = (
    Rule(
        ("loss_share",),
        "sums to 1 over all rows, or is 0 throughout where no term of the loss has a size",
        ((col("loss_share").sum() - 1).abs() <= 1e-6) | (col("loss_share").abs().max() == 0),
    ),
    Rule(
        ("kl_reference",),
        "is null in all rows or in none",
        (col("kl_reference").null_count() == 0) | (col("kl_reference").null_count() == pl.len()),
    ),
)

_METRIC_ROWS = (_at_least("iteration", 0), *_named("stage", "name"), *_finite("value"))

_EPISODE_ROWS = (
    *_named("cell"),
    *_EPISODE_RULES,
    *(_at_least(name, 0) for name in ("member", "temperature", "num_actions", "num_response_tokens")),
    _at_least("num_turns", 1),
    *_finite("temperature", "episode_return"),
    Rule(
        ("num_format_errors", "num_turns"),
        "lies between 0 and num_turns",
        (col("num_format_errors") >= 0) & (col("num_format_errors") <= col("num_turns")),
    ),
    _one_of("status", STATUSES),
    *_aligned("observations", "responses", "actions"),
    Rule(
        ("num_turns", "observations"),
        "is the number of observations",
        col("num_turns") == col("observations").list.len(),
    ),
)

_EPISODE_TABLE = (
    *(_same(name, "cell", "env_seed") for name in ("env", "initial_state_digest")),
    _same("temperature", "cell"),
    _counted("member", "cell", "env_seed"),
)

_ROW_RULES = {
    "turns": _TURN_ROWS,
    "rewards": _REWARD_ROWS,
    "selection": _SELECTION_ROWS,
    "samples": _SAMPLE_ROWS,
    "metrics": _METRIC_ROWS,
    "episodes": _EPISODE_ROWS,
}

_ACROSS_RULES: dict[str, tuple[Rule, ...]] = {
    "turns": _TURN_TABLE,
    "rewards": _REWARD_TABLE,
    "selection": _SELECTION_TABLE,
    "samples": _SAMPLE_TABLE,
    "metrics": (),
    "episodes": _EPISODE_TABLE,
}
