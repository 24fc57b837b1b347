"""Checks of single columns: what a value may be, whatever the other columns and rows are.

checks + rules -> models -> validate
"""

import math
from collections.abc import Callable, Iterable

import polars as pl
from pandera.polars import Check
from polars import col

from starpo.schemas.datasets import FINISH_REASONS, ORIGINS, QUANTITIES, STATUSES

SCORE_METRICS = ("std", "sample_std", "mean", "sum", "entropy", "entropy_std", "length")
"""Metrics by which groups can be scored."""

MAX_VOCABULARY = 2**20
"""Upper bound of token ids; no policy has a larger vocabulary."""

MIN_LOGPROB = -104.0
"""Nats; the smallest positive float32 is exp(-103.3), and a token of probability 0 is never sampled."""

_ROUNDING = 1e-6
"""Tolerance of values that follow from float32 arithmetic."""


def each_value(text: str, holds: Callable[[pl.Expr], pl.Expr]) -> Check:
    """Require an expression of the column to hold in every row; null counts as satisfied."""
    return Check(lambda data: data.lazyframe.select(holds(col(data.key))), error=text)


def each_item(text: str, holds: pl.Expr) -> Check:
    """Require an expression to hold for every item of a list."""
    return each_value(text, lambda lists: lists.list.eval(holds).list.all())


def _one_of(allowed: Iterable[str]) -> Check:
    return Check.isin(list(allowed), error=f"is one of {', '.join(allowed)}")


def _at_least(low: float) -> Check:
    return Check.ge(low, error=f"is at least {low:g}")


def _is_object(texts: pl.Expr) -> pl.Expr:
    """Whether texts are JSON objects; each distinct text is parsed once, however many rows contain it."""
    distinct = texts.unique(maintain_order=True)  # the two uses below must agree
    broken = distinct.filter(~distinct.str.json_path_match("$").str.starts_with("{").fill_null(False))
    return ~texts.is_in(broken.implode())


NO_NULLS_INSIDE = each_item("holds no nulls inside its lists", pl.element().is_not_null())
"""Of every column of lists."""

_finite = each_value("is finite", lambda values: values.is_finite())
_finite_items = each_item("holds finite numbers", pl.element().is_finite())
_not_empty = Check.str_length(min_value=1, error="is not empty")
_counts = _at_least(0)
_positive = _at_least(1)
_share = Check.in_range(-_ROUNDING, 1 + _ROUNDING, error="lies between 0 and 1")
_digest = Check.str_matches("^[0-9a-f]{16}$", error="is 16 hexadecimal digits")
_image = Check.str_matches("^[0-9a-f]{32}$", error="is 32 hexadecimal digits")
_actions = each_item("holds no empty text", pl.element().str.len_bytes() > 0)
_token_ids = each_value(
    f"holds token ids from 0 to {MAX_VOCABULARY - 1}",
    lambda ids: (ids.list.min() >= 0) & (ids.list.max() < MAX_VOCABULARY),
)
_logprobs = each_value(
    f"holds numbers from {MIN_LOGPROB:g} to 0",
    lambda nats: (nats.list.min() >= MIN_LOGPROB) & (nats.list.max() <= 0) & ~nats.list.sum().is_nan(),
)


def _of(*checks: tuple[str, Check]) -> dict[str, list[Check]]:
    """Return column -> checks, from pairs of column names, separated by blanks, and a check of each."""
    by_column: dict[str, list[Check]] = {}
    for names, check in checks:
        for name in names.split():
            by_column.setdefault(name, []).append(check)
    return by_column


_TURNS = _of(
    ("trajectory_id group_id env", _not_empty),
    ("env_seed dynamics_seed sampling_seed member turn forfeited_actions actions_left", _counts),
    ("action_cost", each_value("is finite and at most 0", lambda cost: cost.is_finite() & (cost <= 0))),
    ("status", _one_of(STATUSES)),
    ("finish_reason", _one_of(FINISH_REASONS)),
    ("origin", _one_of(ORIGINS)),
    ("initial_state_digest state_digest", _digest),
    ("prompt_ids response_ids", _token_ids),
    ("behaviour_logprobs", _logprobs),
    ("executed_actions", _actions),
    ("action_rewards", _finite_items),
    ("info", each_value("is a JSON object", _is_object)),
)

CHECKS: dict[str, dict[str, list[Check]]] = {
    "turns": _TURNS,
    "episode_turns": _TURNS,
    "siblings": _of(
        ("trajectory_id", _not_empty),
        ("turn candidate", _counts),
        ("parent", _at_least(-1)),
        ("response_ids", _token_ids),
        ("response_ids", each_value("is not empty", lambda ids: ids.list.len() > 0)),
        ("behaviour_logprobs", _logprobs),
        ("executed_actions", _actions),
        ("score", _finite),
    ),
    "images": _of(
        ("digest", _image),
        ("height width", _positive),
    ),
    "turn_images": _of(
        ("trajectory_id", _not_empty),
        ("turn position num_tokens", _counts),
        ("image", _image),
    ),
    "rewards": _of(
        ("trajectory_id group_id", _not_empty),
        ("turn", _counts),
        ("component_values", _finite_items),
        ("total trajectory_return normalised_return", _finite),
    ),
    "selection": _of(
        ("group_id env strategy reason", _not_empty),
        ("env_seed num_valid return_std", _counts),
        ("num_trajectories", _positive),
        ("metric", _one_of(SCORE_METRICS)),
        ("score return_std return_mean return_max return_min", _finite),
        ("success_rate", _share),
    ),
    "curriculum": _of(
        ("level", _not_empty),
        ("place num_groups", _counts),
        ("base_share share success", _share),
        ("recent", each_item("holds shares, 0 to 1", pl.element().is_between(0, 1))),
        ("owed", _finite),
    ),
    "teacher_logprobs": _of(
        ("trajectory_id group_id", _not_empty),
        ("turn num_hint_tokens", _counts),
        ("logprobs", _finite_items),
    ),
    "teacher_top_tokens": _of(
        ("trajectory_id group_id", _not_empty),
        ("turn", _counts),
        ("logprobs", _finite_items),
    ),
    "samples": _of(
        ("trajectory_id group_id", _not_empty),
        ("num_tokens mean_ratio old_behaviour_gap", _counts),
        ("trajectory_return advantage mean_ratio kl_behaviour kl_reference old_behaviour_gap", _finite),
        (
            "entropy",
            Check.in_range(
                -_ROUNDING,
                math.log(MAX_VOCABULARY),
                error="lies between 0 and the logarithm of the largest vocabulary",
            ),
        ),
        ("clip_fraction loss_share", _share),
    ),
    "trained_tokens": _of(
        ("trajectory_id group_id", _not_empty),
        ("turn", _counts),
        ("advantages ratios clip_fractions entropies", _finite_items),
    ),
    "credits": _of(
        ("trajectory_id group_id", _not_empty),
        ("turn num_tokens value_se advantage_se", _counts),
        ("state", _digest),
        ("num_continuations", _at_least(2)),
        ("returns", _finite_items),
        ("success", _share),
        ("value value_se value_after reward advantage advantage_se solver_before solver_after", _finite),
    ),
    "credit_estimates": _of(
        ("estimator trajectory_id group_id", _not_empty),
        ("turn", _counts),
        ("quantity", _one_of(QUANTITIES)),
        ("estimate", _finite),
    ),
    "metrics": _of(("iteration", _counts), ("stage name", _not_empty), ("value", _finite)),
    "episodes": _of(
        ("cell env", _not_empty),
        ("env_seed member temperature num_actions num_response_tokens num_format_errors", _counts),
        ("num_turns", _positive),
        ("temperature episode_return", _finite),
        ("status", _one_of(STATUSES)),
        ("initial_state_digest", _digest),
    ),
}
"""Dataset kind -> column -> its checks, beyond its type and its nulls."""
