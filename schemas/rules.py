"""Rules of every dataset beyond its columns, as one table of rules per dataset.

Rules that hold for every dataset (columns, types, nulls, nulls inside lists, unique keys) are derived from
`schemas.datasets` in `schemas.models`; this file contains the rest, except those of `turns` and `siblings`, which are
in `schemas.turn_rules`.

    rule -> rules -> models -> validate
"""

import math

import polars as pl
from polars import col

from starpo.schemas.datasets import ERROR_STATUSES, STATUSES
from starpo.schemas.rule import (
    Rule,
    aligned,
    at_least,
    close,
    constant,
    counted,
    each_item,
    finite,
    is_whole,
    not_empty,
    one_of,
    same,
    share,
)
from starpo.schemas.turn_rules import (
    EPISODE_RULES,
    MAX_VOCABULARY,
    SIBLING_ROWS,
    SIBLING_TABLE,
    TURN_ROWS,
    TURN_TABLE,
)

SCORE_METRICS = ("std", "sample_std", "mean", "sum", "entropy", "entropy_std", "length")
"""Metrics by which groups can be scored."""

ACTION_MARK = " || "
"""Separator between the actions of an episode's turn."""

ZERO_VARIANCE_STD = 1e-6
"""Returns with a standard deviation up to this count as equal: the difference is rounding."""

_ROUNDING = 1e-9
_FLOAT32_ROUNDING = 1e-6

_REWARD_ROWS = (
    *not_empty("trajectory_id", "group_id"),
    at_least("turn", 0),
    *aligned("component_names", "component_values"),
    Rule(
        ("component_names",),
        "names each component once",
        col("component_names").list.n_unique() == col("component_names").list.len(),
    ),
    Rule(("component_values",), "holds finite numbers", each_item("component_values", pl.element().is_finite())),
    *finite("total", "trajectory_return", "normalised_return"),
    Rule(
        ("total", "component_values"),
        "is the sum of component_values",
        close(col("total"), col("component_values").list.sum()),
    ),
)

CLIP_BOUNDS = (-1.0, 3.0)
"""Bounds of returns normalised by 'asymmetric_clip' (RAGEN-2)."""

_is_cut = ~col("normalised_return").is_between(*CLIP_BOUNDS, closed="none")


def _is_shifted_and_scaled(normalised: pl.Expr, paid: pl.Expr) -> pl.Expr:
    """Whether one is a linear function of the other, increasing or constant."""
    normalised_range, paid_range = normalised.max() - normalised.min(), paid.max() - paid.min()
    return (
        ((paid_range > 0) | (normalised_range == 0))
        & close((normalised - normalised.min()) * paid_range, (paid - paid.min()) * normalised_range)
    ).all()


def _is_clipped(normalised: pl.Expr, paid: pl.Expr) -> pl.Expr:
    """Whether the same holds between the bounds, and values beyond are clipped to them, in the order of the returns."""
    step, paid_step = normalised.sort_by("trajectory_return").diff(), paid.sort_by("trajectory_return").diff()
    is_in_order = ((step > 0) & (paid_step > 0)) | ((step == 0) & (paid_step >= 0))
    return (
        normalised.is_between(*CLIP_BOUNDS).all()
        & is_in_order.all()
        & _is_shifted_and_scaled(normalised.filter(~_is_cut), paid.filter(~_is_cut))
    )


_REWARD_TABLE = (
    Rule(("component_names",), "is the same in all rows", col("component_names").n_unique() <= 1),
    Rule(
        ("normalised_return", "trajectory_return", "group_id", "is_valid"),
        "is trajectory_return shifted and scaled, equally for all valid trajectories of a group_id, and optionally "
        "clipped to -1 .. 3",
        _is_shifted_and_scaled(col("normalised_return"), col("trajectory_return"))
        | _is_clipped(col("normalised_return"), col("trajectory_return")),
        ("group_id", "is_valid"),
    ),
    *(same(n, "trajectory_id") for n in ("group_id", "trajectory_return", "normalised_return", "is_valid")),
    counted("turn", "trajectory_id"),
    Rule(
        ("trajectory_return", "total", "trajectory_id"),
        "is the sum of total over the trajectory's turns",
        close(col("trajectory_return").max(), col("total").sum()),
        ("trajectory_id",),
    ),
)

_STATISTICS = ("score", "return_std", "return_mean", "return_max", "return_min", "success_rate")

_num_valid = col("num_valid").cast(pl.Float64)
_num_between = _num_valid - 2  # returns other than the smallest and the largest; their mean is known as well
_mean_between = (_num_valid * col("return_mean") - col("return_min") - col("return_max")) / _num_between
_sum_of_squares = col("return_std").pow(2) * _num_valid
_least_squares = (
    (col("return_max") - col("return_mean")).pow(2)
    + (col("return_min") - col("return_mean")).pow(2)
    + pl.when(_num_between > 0).then(_num_between * (_mean_between - col("return_mean")).pow(2)).otherwise(0.0)
)
_most_squares = (col("return_max") - col("return_mean")) * (col("return_mean") - col("return_min")) * _num_valid
_squares_tolerance = (
    _ROUNDING * _num_valid * pl.max_horizontal(pl.lit(1.0), col("return_max").pow(2), col("return_min").pow(2))
)

_SELECTION_ROWS = (
    *not_empty("group_id", "env", "strategy", "reason"),
    at_least("env_seed", 0),
    at_least("num_trajectories", 1),
    Rule(
        ("num_valid", "num_trajectories"),
        "lies between 0 and num_trajectories",
        (col("num_valid") >= 0) & (col("num_valid") <= col("num_trajectories")),
    ),
    one_of("metric", SCORE_METRICS),
    *finite(*_STATISTICS),
    at_least("return_std", 0),
    share("success_rate"),
    Rule(
        ("success_rate", "num_valid"),
        "is a whole number of num_valid",
        is_whole(col("success_rate") * _num_valid),
    ),
    Rule(
        ("return_mean", "return_min", "return_max", "num_valid"),
        "is a mean of num_valid returns from return_min to return_max, both among them",
        (col("return_min") <= col("return_max"))
        & pl.when(_num_between > 0)
        .then(close(_mean_between, _mean_between.clip(col("return_min"), col("return_max"))))
        .otherwise(close(col("return_mean"), (col("return_min") + col("return_max")) / 2)),
    ),
    Rule(
        ("return_max", "return_min", "num_valid"),
        "is return_min where num_valid is 1",
        (col("num_valid") != 1) | (col("return_max") == col("return_min")),
    ),
    Rule(
        ("return_std", "return_mean", "return_min", "return_max", "num_valid"),
        "is possible for num_valid returns of this mean, from return_min to return_max",
        (_sum_of_squares >= _least_squares - _squares_tolerance)
        & (_sum_of_squares <= _most_squares + _squares_tolerance),
    ),
    *(
        Rule((name, "num_valid"), "is 0 where num_valid is 0", (col("num_valid") > 0) | (col(name) == 0))
        for name in _STATISTICS
    ),
    Rule(
        ("score", "metric", "return_std", "return_mean", "num_valid"),
        "is what metric says: return_std, return_mean, return_mean times num_valid, an entropy of at least 0, its "
        "spread over several trajectories, or a mean number of tokens",
        pl.when(col("metric") == "std")
        .then(col("score") == col("return_std"))
        .when(col("metric") == "mean")
        .then(col("score") == col("return_mean"))
        .when(col("metric") == "sum")
        .then(close(col("score"), col("return_mean") * _num_valid))
        .when(col("metric") == "entropy_std")
        .then((col("score") >= 0) & ((col("score") == 0) | (_num_valid > 1)))
        .when(col("metric") == "length")
        .then((col("score") >= 0) & is_whole(col("score") * _num_valid))
        .otherwise(col("score") >= 0),
    ),
    Rule(
        ("kept", "reason"),
        "is true exactly where reason begins with 'kept'",
        col("kept") == col("reason").str.starts_with("kept"),
    ),
    Rule(("kept", "num_valid"), "is true only where num_valid is not 0", ~col("kept") | (col("num_valid") > 0)),
)


def _is_ranked(is_barred: pl.Expr, score: pl.Expr) -> pl.Expr:
    """Whether ranks follow the score, and all barred groups come last, again by score."""
    barred_step = is_barred.cast(pl.Int8).sort_by("rank").diff()
    score_step = score.sort_by("rank").diff()
    return ((barred_step > 0) | ((barred_step == 0) & (score_step >= 0))).all()


_has_none_valid = col("num_valid") == 0

_SELECTION_TABLE = (
    *constant("num_trajectories", "metric", "strategy"),
    Rule(
        ("rank",),
        "is a permutation of 0, 1, 2, ...",
        col("rank").is_unique() & (col("rank") >= 0) & (col("rank") < pl.len()),
    ),
    Rule(
        ("rank", "score", "num_valid", "return_std"),
        "follows the scores, descending or ascending, with groups that could not be kept last",
        pl.any_horizontal(
            _is_ranked(is_barred, score)
            for is_barred in (_has_none_valid, _has_none_valid | (col("return_std") <= ZERO_VARIANCE_STD))
            for score in (col("score"), -col("score"))
        ),
    ),
)

_MEANS_OF_TOKENS = ("advantage", "clip_fraction", "kl_behaviour", "entropy", "old_behaviour_gap", "loss_share")

_SAMPLE_ROWS = (
    *not_empty("trajectory_id", "group_id"),
    at_least("num_tokens", 0),
    *finite("trajectory_return", "advantage", "mean_ratio", "clip_fraction", "kl_behaviour", "kl_reference"),
    *finite("entropy", "old_behaviour_gap", "loss_share"),
    Rule(
        ("mean_ratio",),
        "lies between e^-20 and e^20, to which ratios are clamped",
        col("mean_ratio").is_between(math.exp(-20.01), math.exp(20.01)),
    ),
    at_least("old_behaviour_gap", 0),
    Rule(
        ("entropy",),
        "lies between 0 and the logarithm of the largest vocabulary",
        col("entropy").is_between(-_FLOAT32_ROUNDING, math.log(MAX_VOCABULARY)),
    ),
    Rule(
        ("num_tokens", *_MEANS_OF_TOKENS),
        "is 0 only where mean_ratio is 1 and the other columns are 0",
        (col("num_tokens") > 0)
        | ((col("mean_ratio") == 1) & pl.all_horizontal(col(n).fill_null(0) == 0 for n in _MEANS_OF_TOKENS)),
    ),
    Rule(
        ("entropy", "old_behaviour_gap"),
        "are null together: the trajectory was not scored before the update",
        col("entropy").is_null() == col("old_behaviour_gap").is_null(),
    ),
    share("clip_fraction"),
    share("loss_share"),
)

_was_scored = col("kl_behaviour").is_not_null()

_SAMPLE_TABLE = (
    Rule(
        ("kl_behaviour",), "is not null in all rows: some group is always scored", _was_scored.any() | (pl.len() == 0)
    ),
    Rule(
        ("kl_behaviour", "num_tokens", "group_id"),
        "is null for all rows of a group_id with num_tokens or for none: groups are scored as a whole",
        _was_scored.filter(col("num_tokens") > 0).n_unique() <= 1,
        ("group_id",),
    ),
    Rule(
        ("loss_share",),
        "sums to 1 over all rows, or is 0 in all rows if all terms of the loss are 0",
        ((col("loss_share").sum() - 1).abs() <= 1e-6) | (col("loss_share").abs().max() == 0),
    ),
    Rule(
        ("kl_reference", "kl_behaviour"),
        "kl_reference is null in all rows, or exactly where kl_behaviour is",
        (col("kl_reference").null_count() == pl.len())
        | (col("kl_reference").is_null() == col("kl_behaviour").is_null()).all(),
    ),
)

# Excluded: names chosen by a component; differences; cosines, whose names end with a user-defined objective.
_is_ours = ~col("name").str.contains("^(reward/component|replay|objectives/[^/]+/cosine)/")
_own_name = col("name").str.replace("^((?:rollout|reward|filter)/[^/]+)/[^/]+$", "${1}")  # without a mixture's tag


def _is_named(pattern: str) -> pl.Expr:
    """Whether the last part of the metric's name matches the pattern."""
    return _is_ours & _own_name.str.contains(f"(^|/)({pattern})$")


_METRIC_ROWS = (
    at_least("iteration", 0),
    *not_empty("stage", "name"),
    *finite("value"),
    Rule(
        ("value", "name"),
        "is a whole number of at least 0 where name says num_...",
        ~_is_named("num_[^/]*") | ((col("value") >= 0) & is_whole(col("value"))),
    ),
    Rule(
        ("value", "name"),
        "lies between 0 and 1 where name says that it is a share",
        ~_is_named(".*_share|clip_fraction[^/]*|.*success(_rate|_low|_high)?|format_ok|pass_at_[0-9]+")
        | col("value").is_between(-_ROUNDING, 1 + _ROUNDING),
    ),
    Rule(
        ("value", "name"),
        "is at least 0 where name says that it is a size",
        ~_is_named("entropy|.*_std|.*_norm(_max)?|.*learning_rate|ratio_[^/]*|.*_gap_(max|mean)|.*_length_[^/]*")
        | (col("value") >= -_FLOAT32_ROUNDING),
    ),
)

_METRIC_TABLE = (*constant("iteration", "stage"),)

_num_acting = col("actions").list.eval(pl.element() != "").list.sum()
_has_broken_off = col("status").is_in(("truncated", *ERROR_STATUSES)).cast(pl.Int64)

_EPISODE_ROWS = (
    *not_empty("cell"),
    *EPISODE_RULES,
    *(at_least(name, 0) for name in ("member", "temperature", "num_actions", "num_response_tokens")),
    at_least("num_turns", 1),
    *finite("temperature", "episode_return"),
    Rule(
        ("num_format_errors", "num_turns"),
        "lies between 0 and num_turns",
        (col("num_format_errors") >= 0) & (col("num_format_errors") <= col("num_turns")),
    ),
    one_of("status", STATUSES),
    Rule(
        ("status", "num_format_errors"),
        "is 'ok' only without format errors, and 'format_error' only with one",
        pl.when(col("status") == "ok")
        .then(col("num_format_errors") == 0)
        .otherwise((col("status") != "format_error") | (col("num_format_errors") > 0)),
    ),
    *aligned("observations", "responses", "actions"),
    Rule(
        ("num_actions", "actions"),
        "is the number of actions",
        col("num_actions")
        == _num_acting + col("actions").list.eval(pl.element().str.count_matches(ACTION_MARK, literal=True)).list.sum(),
    ),
    Rule(
        ("actions", "num_turns", "num_format_errors", "status"),
        "is empty only in a turn that was malformed or cut short",
        col("num_turns") - _num_acting.cast(pl.Int64) <= col("num_format_errors") + _has_broken_off,
    ),
    Rule(
        ("num_response_tokens", "responses"),
        "is at least the number of non-empty responses",
        col("num_response_tokens") >= col("responses").list.eval(pl.element() != "").list.sum(),
    ),
    Rule(("success", "num_actions"), "is true only after an action", ~col("success") | (col("num_actions") > 0)),
    Rule(
        ("episode_return", "num_actions"),
        "is 0 without an action",
        (col("episode_return") == 0) | (col("num_actions") > 0),
    ),
    Rule(
        ("num_turns", "observations"),
        "is the number of observations",
        col("num_turns") == col("observations").list.len(),
    ),
)

_EPISODE_TABLE = (
    *(same(name, "cell", "env_seed") for name in ("initial_state_digest", "env")),  # a mixture's cell has several
    same("temperature", "cell"),
    counted("member", "cell", "env_seed"),
    Rule(
        ("member", "cell", "env_seed"),
        "has the same maximum for every env_seed of a cell",
        col("member").max().over("cell", "env_seed") == col("member").max().over("cell"),
    ),
)

ROW_RULES: dict[str, tuple[Rule, ...]] = {
    "turns": TURN_ROWS,
    "siblings": SIBLING_ROWS,
    "rewards": _REWARD_ROWS,
    "selection": _SELECTION_ROWS,
    "samples": _SAMPLE_ROWS,
    "metrics": _METRIC_ROWS,
    "episodes": _EPISODE_ROWS,
}
"""Dataset kind -> rules on single rows."""

ACROSS_RULES: dict[str, tuple[Rule, ...]] = {
    "turns": TURN_TABLE,
    "siblings": SIBLING_TABLE,
    "rewards": _REWARD_TABLE,
    "selection": _SELECTION_TABLE,
    "samples": _SAMPLE_TABLE,
    "metrics": _METRIC_TABLE,
    "episodes": _EPISODE_TABLE,
}
"""Dataset kind -> rules across rows."""
