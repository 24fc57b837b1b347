"""From turns and rewards to the dataset `selection`: score, rank, decision and its reason for every group.

    turns, rewards --group statistics--> score --strategy--> kept

Scores are computed from the raw returns, never from normalised ones (with 'mean_std' every group's standard deviation
would be 1 and the ranking noise). The filter changes no reward and neither duplicates nor pads groups: a kept group is
trained on once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.core.errors import DataError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.core.visible import quoted
from starpo.schemas.datasets import SELECTION, UNKNOWN_FINISH
from starpo.schemas.rules import ZERO_VARIANCE_STD

SURPLUS = "dropped: surplus"
"""Prefix of the reason for a group that the strategy would keep, but that exceeds the number of groups wanted."""

OUTRANKED = "dropped: number"
"""Prefix of the reason for an eligible group that the strategy did not keep."""


def select_groups(turns: pa.Table, rewards: pa.Table, config: FilterConfig, num_before: int = 0) -> pa.Table:
    """Choose the groups to train on.

    Only valid trajectories enter a group's statistics; greedy ones are not counted at all. A group is not eligible if
    it has no valid trajectory, or, with `should_drop_zero_variance`, if its returns are equal; such groups rank behind
    all others. Of the groups that the strategy keeps, the first ones in playing order are kept up to `num_wanted`, as
    in DAPO: only the strategy chooses by score. With `scope = "environment"` the strategy sees the groups of one
    environment (the column `env`) at a time; ranks are over all groups.

    Args:
        turns: Dataset `turns`, rows in any order.
        rewards: Dataset `rewards` of those turns, rows in any order.
        config: The metric, its direction, the strategy, and the number of groups wanted.
        num_before: Number of groups kept in earlier attempts of the same iteration; they count towards `num_wanted`.

    Returns:
        Dataset `selection`, one row per group, in order of first appearance in `turns`. Possibly no group is kept; the
        table is empty for empty turns.

    Raises:
        DataError: If `rewards` lacks a trajectory of `turns`, or the metric needs log-probs that were not recorded.
    """
    if config.metric in ("entropy", "entropy_std", "length"):
        _check_recorded(turns, config.metric)
    groups = _group_statistics(_trajectories(turns, rewards), config)
    scores = groups["score"].to_numpy()
    may_keep = groups["num_valid"].to_numpy() > 0
    if config.should_drop_zero_variance:
        may_keep &= groups["return_std"].to_numpy() > ZERO_VARIANCE_STD
    is_kept = np.zeros(len(groups), dtype=bool)
    for members in _scopes(groups, config):
        goodness = _larger_is_better(scores[members], may_keep[members], config.should_keep_largest)
        with plugin_call("filter", FILTERS, config.strategy):
            decided = load(FILTERS, config.strategy)(goodness, config)
        assert decided.shape == members.shape, f"strategy '{config.strategy}' must decide on every group"
        is_kept[members] = decided
    assert not (is_kept & ~may_keep).any(), f"strategy '{config.strategy}' kept a group that may not be kept"
    is_surplus = _is_surplus(is_kept, config, num_before)
    # Best first, by the scores as strategies see them, in whose rounding two may tie; ineligible groups last.
    # lexsort is stable, so ties go to the earlier group.
    direction = -1.0 if config.should_keep_largest else 1.0
    goodness = _larger_is_better(scores, may_keep, config.should_keep_largest)
    order = np.lexsort((np.where(may_keep, 0.0, direction * scores), -goodness, ~may_keep))
    ranks = np.empty(len(order), dtype=np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    groups = groups.with_columns(
        pl.Series("rank", ranks),
        pl.Series("kept", is_kept & ~is_surplus),
        pl.lit(config.metric).alias("metric"),
        pl.lit(config.strategy).alias("strategy"),
    )
    reasons = _reasons(groups, may_keep, is_kept, is_surplus, config)
    schema = SELECTION.schema
    groups = groups.with_columns(pl.Series("reason", reasons, dtype=pl.String))
    return groups.select(schema.names).to_arrow().cast(schema)


def _scopes(groups: pl.DataFrame, config: FilterConfig) -> list[np.ndarray]:
    """Return the indices of the groups that are compared with each other: all, or those of each environment."""
    if config.scope == "batch":
        return [np.arange(len(groups))]
    environments = groups["env"].to_numpy()
    return [np.flatnonzero(environments == env) for env in groups["env"].unique(maintain_order=True)]


def _is_surplus(is_kept: np.ndarray, config: FilterConfig, num_before: int) -> np.ndarray:
    """Mark the groups that the strategy keeps beyond the number wanted, bool [groups]."""
    if config.num_wanted is None:
        return np.zeros(len(is_kept), dtype=bool)
    return is_kept & (num_before + np.cumsum(is_kept) > config.num_wanted)


def _trajectories(turns: pa.Table, rewards: pa.Table) -> pl.DataFrame:
    """Return one row per trajectory, without greedy ones: group, return, validity, success, and the length and log-prob
    sum of its responses."""
    columns = ["trajectory_id", "group_id", "env", "env_seed", "success", "behaviour_logprobs", "origin"]
    played = (
        pl.DataFrame(turns.select(columns))
        .filter(pl.col("origin") != "greedy")
        .group_by("trajectory_id", maintain_order=True)
        .agg(
            pl.col("group_id", "env", "env_seed").first(),
            pl.col("success").any(),
            num_tokens=pl.col("behaviour_logprobs").list.len().sum().cast(pl.Int64),
            logprob_sum=pl.col("behaviour_logprobs").list.eval(pl.element().cast(pl.Float64)).list.sum().sum(),
        )
    )
    paid = pl.DataFrame(rewards.select(["trajectory_id", "trajectory_return", "is_valid"]))
    trajectories = played.join(paid.unique("trajectory_id"), on="trajectory_id", how="left", maintain_order="left")
    unpaid = trajectories.filter(pl.col("trajectory_return").is_null())["trajectory_id"]
    if len(unpaid) > 0:
        raise DataError(
            f"rewards do not belong to these turns: {len(unpaid)} of {len(trajectories)} trajectories have none "
            f"(first: '{unpaid[0]}'); compute the rewards from the same turns"
        )
    return trajectories


def _check_recorded(turns: pa.Table, metric: str) -> None:
    is_absent = (pl.col("finish_reason") == UNKNOWN_FINISH) & (pl.col("behaviour_logprobs").list.len() == 0)
    frame = pl.DataFrame(turns.select(["trajectory_id", "finish_reason", "behaviour_logprobs"])).filter(is_absent)
    if frame.height:
        raise DataError(
            f"filter.metric = '{metric}' needs the sampler's log-probs, and {frame.height} responses were imported "
            f"without them (first: of trajectory {quoted(frame['trajectory_id'][0])}): score groups by std or mean"
        )


def _group_statistics(trajectories: pl.DataFrame, config: FilterConfig) -> pl.DataFrame:
    """Return one row per group; every statistic is over its valid trajectories, and 0 if there are none."""
    valid = pl.col("is_valid")
    # Sorted, so that groups with the same returns have bitwise identical statistics, and tie.
    returns = pl.col("trajectory_return").filter(valid).sort()
    num_tokens = pl.col("num_tokens").filter(valid)
    has_tokens = valid & (pl.col("num_tokens") > 0)  # a trajectory without a token has no mean over its tokens
    entropies = (-pl.col("logprob_sum") / pl.col("num_tokens")).filter(has_tokens)
    metric = {
        "std": pl.col("return_std"),
        "sample_std": pl.col("sample_std"),
        "mean": pl.col("return_mean"),
        "sum": pl.col("return_sum"),
        "entropy": pl.when(pl.col("num_tokens") > 0).then(-pl.col("logprob_sum") / pl.col("num_tokens")).otherwise(0.0),
        "entropy_std": pl.col("entropy_std"),
        "length": pl.when(pl.col("num_valid") > 0).then(pl.col("num_tokens") / pl.col("num_valid")).otherwise(0.0),
    }[config.metric]
    return (
        trajectories.group_by("group_id", maintain_order=True)
        .agg(
            pl.col("env", "env_seed").first(),
            num_trajectories=pl.len().cast(pl.Int32),
            num_valid=valid.sum().cast(pl.Int32),
            return_std=returns.std(ddof=0).fill_null(0.0),
            sample_std=returns.std(ddof=1).fill_null(0.0),  # null for a single return
            return_mean=returns.mean().fill_null(0.0),
            return_sum=returns.sum(),
            return_max=returns.max().fill_null(0.0),
            return_min=returns.min().fill_null(0.0),
            success_rate=pl.col("success").filter(valid).mean().fill_null(0.0),
            num_tokens=num_tokens.sum(),
            logprob_sum=pl.col("logprob_sum").filter(valid).sort().sum(),
            entropy_std=entropies.sort().std(ddof=0).fill_null(0.0),
        )
        .with_columns(score=metric.cast(pl.Float64))
    )


def _larger_is_better(scores: np.ndarray, may_keep: np.ndarray, should_keep_largest: bool) -> np.ndarray:
    """Return the scores as strategies see them: larger is better, `-inf` for groups that are not eligible.

    To keep the smallest, scores are reflected about the middle of their range (largest + smallest - score): the order
    is reversed, and non-negative scores stay non-negative.
    """
    goodness = np.where(may_keep, scores, -np.inf)
    if should_keep_largest or not may_keep.any():
        return goodness
    candidates = scores[may_keep]
    return np.where(may_keep, candidates.max() + candidates.min() - scores, -np.inf)


def _reasons(
    groups: pl.DataFrame, may_keep: np.ndarray, is_kept: np.ndarray, is_surplus: np.ndarray, config: FilterConfig
) -> list[str]:
    """Explain in words why each group was kept or dropped; `is_kept` is the strategy's decision."""
    direction = "" if config.should_keep_largest else " (smallest first)"
    reasons = [""] * len(groups)
    for members in _scopes(groups, config):
        compared = groups[members]
        of = f" of {compared['env'][0]}" if config.scope == "environment" else ""
        num_candidates = int(may_keep[members].sum())
        rule = f"{_rule(config)} keeps {is_kept[members].sum()} of {len(compared)} groups{of}"
        if num_candidates < len(compared):
            num_invalid = int((compared["num_valid"] == 0).sum())
            num_equal = len(compared) - num_candidates - num_invalid
            counts = {"without variance": num_equal, "without a valid trajectory": num_invalid}
            rule += ", of which " + " and ".join(f"{number} {what}" for what, number in counts.items() if number)
        places = compared["rank"].rank().cast(pl.Int32)
        for member, place, group in zip(members, places, compared.iter_rows(named=True), strict=True):
            if is_surplus[member]:
                reasons[member] = f"{SURPLUS}, the {config.num_wanted} groups wanted were kept before it; {rule}"
            elif may_keep[member]:
                standing = f"number {place} of {num_candidates} by {config.metric} {group['score']:.4g}{direction}"
                reasons[member] = f"{'kept' if group['kept'] else 'dropped'}: {standing}; {rule}"
            elif group["num_valid"] == 0:
                reasons[member] = f"dropped: no valid trajectory, all {group['num_trajectories']} ended in an error"
            else:
                reasons[member] = f"dropped: zero variance, {_equal_returns(group)}"
    return reasons


def _equal_returns(group: Mapping[str, Any]) -> str:
    spread = group["return_max"] - group["return_min"]
    if spread == 0:
        return f"all {group['num_valid']} valid returns are {group['return_mean']:.4g}"
    return f"the {group['num_valid']} valid returns around {group['return_mean']:.4g} differ by {spread:.1g} at most"


def _rule(config: FilterConfig) -> str:
    if config.strategy == "none":
        return "no filter"
    if config.keep_count is not None:
        return f"{config.strategy} with keep_count = {config.keep_count}"
    if not FILTERS.is_built_in(config.strategy):  # it need not read `keep`
        options = ", ".join(f"{name} = {value}" for name, value in config.options.items())
        return f"{config.strategy} with {options}" if options else config.strategy
    return f"{config.strategy} with keep = {config.keep:g}"
