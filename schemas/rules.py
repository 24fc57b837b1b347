"""Rules of every dataset beyond its columns' own checks, as one table of rules per dataset.

The rules of `turns` and `siblings` are in `schemas.turn_rules`, those of images in `schemas.image_rules`. What a stage
derives from other stored tables is not checked here: `starpo verify` derives it again.

    rule -> rules -> models -> validate
"""

import polars as pl
from polars import col

from starpo.schemas.datasets import ERROR_STATUSES
from starpo.schemas.image_rules import IMAGE_ROWS, TURN_IMAGE_TABLE
from starpo.schemas.rule import Rule, aligned, close, constant, counted, same
from starpo.schemas.turn_rules import SIBLING_ROWS, SIBLING_TABLE, TURN_ROWS, TURN_TABLE

ZERO_VARIANCE_STD = 1e-6
"""Returns with a standard deviation up to this count as equal: the difference is rounding."""

_REWARD_ROWS = (
    *aligned("component_names", "component_values"),
    Rule(
        ("total", "component_values"),
        "is the sum of component_values",
        close(col("total"), col("component_values").list.sum()),
    ),
)

_REWARD_TABLE = (
    Rule(("component_names",), "is the same in all rows", col("component_names").n_unique() <= 1),
    *(same(n, "trajectory_id") for n in ("group_id", "trajectory_return", "normalised_return", "is_valid")),
    counted("turn", "trajectory_id"),
    Rule(
        ("trajectory_return", "total", "trajectory_id"),
        "is the sum of total over the trajectory's turns",
        close(col("trajectory_return").max(), col("total").sum()),
        ("trajectory_id",),
    ),
)

_SELECTION_ROWS = (
    Rule(("num_valid", "num_trajectories"), "is at most num_trajectories", col("num_valid") <= col("num_trajectories")),
    Rule(
        ("return_mean", "return_min", "return_max"),
        "lies between return_min and return_max",
        close(col("return_mean"), col("return_mean").clip(col("return_min"), col("return_max")))
        & (col("return_min") <= col("return_max")),
    ),
    Rule(
        ("kept", "reason"),
        "is true exactly where reason begins with 'kept'",
        col("kept") == col("reason").str.starts_with("kept"),
    ),
    Rule(("kept", "num_valid"), "is true only where num_valid is not 0", ~col("kept") | (col("num_valid") > 0)),
)

_SELECTION_TABLE = (
    *constant("num_trajectories", "metric", "strategy"),
    Rule(
        ("rank",),
        "is a permutation of 0, 1, 2, ...",
        col("rank").is_unique() & (col("rank") >= 0) & (col("rank") < pl.len()),
    ),
)

_CURRICULUM_ROWS = (
    Rule(("is_open", "share"), "is true exactly where share is above 0", col("is_open") == (col("share") > 0)),
    Rule(
        ("success", "recent"),
        "is the mean of recent, and null where that is empty",
        pl.when(col("recent").list.len() == 0)
        .then(col("success").is_null())
        .otherwise(close(col("success"), col("recent").list.mean()).fill_null(False)),
    ),
    Rule(
        ("num_groups", "recent"),
        "is at least the number of recent groups",
        col("num_groups") >= col("recent").list.len(),
    ),
)

_CURRICULUM_TABLE = (
    *(Rule((name,), "sums to 1", (col(name).sum() - 1).abs() <= 1e-9) for name in ("base_share", "share")),
    Rule(("place",), "is a permutation of 0, 1, 2, ...", col("place").is_unique() & (col("place") < pl.len())),
)

_CREDIT_ROWS = (
    Rule(
        ("num_continuations", "returns"),
        "is the number of returns",
        col("num_continuations") == col("returns").list.len(),
    ),
    Rule(("value", "returns"), "is the mean of returns", close(col("value"), col("returns").list.mean())),
    Rule(
        ("value_se", "returns", "num_continuations"),
        "is the standard error of the mean of returns",
        close(col("value_se"), col("returns").list.std(ddof=1) / col("num_continuations").sqrt()),
    ),
    Rule(
        ("advantage", "reward", "value_after", "value"),
        "is reward + value_after - value",
        close(col("advantage"), col("reward") + col("value_after") - col("value")),
    ),
    Rule(
        ("solver_after", "solver_before"),
        "is null exactly where solver_before is",
        col("solver_after").is_null() == col("solver_before").is_null(),
    ),
)


def _follows(after: str, before: str) -> Rule:
    later = col(before).sort_by("turn").shift(-1, fill_value=0.0)
    return Rule(
        (after, before, "turn", "trajectory_id"),
        f"is {before} of the next turn, and 0 after the last",
        close(col(after).sort_by("turn"), later).all(),
        ("trajectory_id",),
    )


_CREDIT_TABLE = (
    same("group_id", "trajectory_id"),
    counted("turn", "trajectory_id"),
    *(same(name, "state") for name in ("num_continuations", "num_tokens", "value", "success", "solver_before")),
    _follows("value_after", "value"),
    _follows("solver_after", "solver_before"),
)

_SAMPLE_TABLE = (
    Rule(
        ("loss_share",),
        "sums to 1 over all rows, or is 0 in all rows if all terms of the loss are 0",
        ((col("loss_share").sum() - 1).abs() <= 1e-6) | (col("loss_share").abs().max() == 0),
    ),
)

_METRIC_TABLE = (*constant("iteration", "stage"),)

_num_acting = col("actions").list.eval(pl.element() != "").list.sum()
_has_broken_off = col("status").is_in(("truncated", *ERROR_STATUSES)).cast(pl.Int64)

_EPISODE_ROWS = (
    Rule(("num_format_errors", "num_turns"), "is at most num_turns", col("num_format_errors") <= col("num_turns")),
    Rule(
        ("status", "num_format_errors"),
        "is 'ok' only without format errors, and 'format_error' only with one",
        pl.when(col("status") == "ok")
        .then(col("num_format_errors") == 0)
        .otherwise((col("status") != "format_error") | (col("num_format_errors") > 0)),
    ),
    *aligned("observations", "responses", "actions"),
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
    "images": IMAGE_ROWS,
    "turn_images": (),
    "rewards": _REWARD_ROWS,
    "selection": _SELECTION_ROWS,
    "curriculum": _CURRICULUM_ROWS,
    "teacher_logprobs": (*aligned("logprobs", "is_mode"),),
    "teacher_top_tokens": (*aligned("token_ids", "logprobs"),),
    "samples": (),
    "trained_tokens": (*aligned("has_loss", "advantages", "ratios", "clip_fractions"),),
    "credits": _CREDIT_ROWS,
    "credit_estimates": (),
    "metrics": (),
    "episodes": _EPISODE_ROWS,
    "episode_turns": TURN_ROWS,
}
"""Dataset kind -> rules on single rows."""

ACROSS_RULES: dict[str, tuple[Rule, ...]] = {
    "turns": TURN_TABLE,
    "siblings": SIBLING_TABLE,
    "images": (),
    "turn_images": TURN_IMAGE_TABLE,
    "rewards": _REWARD_TABLE,
    "selection": _SELECTION_TABLE,
    "curriculum": _CURRICULUM_TABLE,
    "teacher_logprobs": (),
    "teacher_top_tokens": (),
    "samples": _SAMPLE_TABLE,
    "trained_tokens": (),
    "credits": _CREDIT_TABLE,
    "credit_estimates": (same("group_id", "trajectory_id"), same("quantity", "estimator")),
    "metrics": _METRIC_TABLE,
    "episodes": _EPISODE_TABLE,
    "episode_turns": TURN_TABLE,
}
"""Dataset kind -> rules across rows."""
