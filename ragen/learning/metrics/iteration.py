"""Metrics of one iteration: pure functions from stored tables to `name -> value`.

Names are `rollout/...`, `reward/...` and `filter/...`. Every value is finite; an undefined value (a mean over nothing)
is absent from the result, never NaN or 0. Unless noted otherwise, statistics are over *valid* trajectories: one with an
error status ('env_error', 'timeout') is counted, but excluded from statistics. Greedy trajectories, the baselines of
their groups, are excluded from both. Standard deviations have ddof 0.
"""

import bz2
import math
from collections.abc import Iterable

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.learning.filter.select import OUTRANKED, SURPLUS
from starpo.ragen.learning.metrics.table import BY_TAG
from starpo.schemas.datasets import ERROR_STATUSES, UNKNOWN_FINISH
from starpo.schemas.imported import FORMAT, lacks
from starpo.schemas.rules import ZERO_VARIANCE_STD


def rollout_metrics(turns: pa.Table) -> dict[str, float]:
    """Compute the metrics of a rollout.

    Trajectories (denominator: all): `num_trajectories`, `num_turns`; for the statuses truncated, env_error and timeout
    `num_<status>` and `<status>_share`, the trajectories with such a turn.

    Trajectories (denominator: valid): `success_rate` (the goal was reached in some turn), `turns_mean`, `actions_mean`
    (executed), `forfeited_actions_mean`, `limit_share` (ended by a limit, not by the environment).

    Responses (denominator: responses of valid trajectories): `format_ok`, `length_share` (cut off at the maximum
    response length), `response_length_mean` and `response_length_max` (tokens), `distinct_response_share` (distinct
    texts; it falls in the Echo Trap), `reasoning_characters_mean` and `distinct_reasoning_share` (over those with a
    reasoning), `compression_ratio` (bytes of all responses over their bytes after bzip2; it rises as they repeat), and
    `repeated_ngram_share` (share of 4-grams of words that occur earlier in the same response).

    Imported responses are excluded from token metrics if their source has no tokens, from `length_share` if it does
    not record why they ended, and from `format_ok` if it does not say which of them are well formed.

    `entropy`: mean negative behaviour log-probability, nats per token; denominator: response tokens. It estimates the
    entropy of the sampling distribution. `effective_action_share`: denominator: executed actions.

    Args:
        turns: Dataset `turns`.

    Returns:
        Names, each prefixed with `rollout/`, and values. Without any turns, only the counts, all 0.
    """
    columns = ["trajectory_id", "status", "success", "truncated", "forfeited_actions", "executed_actions"]
    columns += ["action_effective", "behaviour_logprobs", "response", "think", "format_ok", "finish_reason", "info"]
    frame = pl.DataFrame(turns.filter(pc.not_equal(turns["origin"], "greedy")).select(columns)).with_columns(
        is_valid=pl.col("status").is_in(ERROR_STATUSES).not_().all().over("trajectory_id"),
        num_actions=pl.col("executed_actions").list.len().cast(pl.Int64),
        num_effective=pl.col("action_effective").list.sum().cast(pl.Int64),
        num_tokens=pl.col("behaviour_logprobs").list.len().cast(pl.Int64),
        logprob_sum=pl.col("behaviour_logprobs").list.eval(pl.element().cast(pl.Float64)).list.sum(),
    )
    num_trajectories = frame["trajectory_id"].n_unique()
    values: dict[str, float | None] = {"num_trajectories": num_trajectories, "num_turns": frame.height}
    for status in ("truncated", *ERROR_STATUSES):
        count = frame.filter(pl.col("status") == status)["trajectory_id"].n_unique()
        values[f"num_{status}"] = count
        values[f"{status}_share"] = _ratio(count, num_trajectories)

    valid = frame.filter("is_valid")
    trajectories = valid.group_by("trajectory_id", maintain_order=True).agg(
        pl.col("success", "truncated").any(), pl.col("num_actions", "forfeited_actions").sum(), num_turns=pl.len()
    )
    values |= {
        "success_rate": _mean(trajectories["success"]),
        "turns_mean": _mean(trajectories["num_turns"]),
        "actions_mean": _mean(trajectories["num_actions"]),
        "forfeited_actions_mean": _mean(trajectories["forfeited_actions"]),
        "limit_share": _mean(trajectories["truncated"]),
        "effective_action_share": _ratio(valid["num_effective"].sum(), valid["num_actions"].sum()),
    }

    responses = valid.filter(pl.col("finish_reason") != "none")
    measured = responses.filter(pl.col("num_tokens") > 0)["num_tokens"]
    reasonings = responses["think"].drop_nulls()
    values |= {
        "format_ok": _mean(responses.filter(~lacks(responses["info"], FORMAT))["format_ok"]),
        "length_share": _mean(responses.filter(pl.col("finish_reason") != UNKNOWN_FINISH)["finish_reason"] == "length"),
        "entropy": _ratio(-responses["logprob_sum"].sum(), measured.sum()),
        "response_length_mean": _mean(measured),
        "response_length_max": _number(measured.max()),
        "distinct_response_share": _ratio(responses["response"].n_unique(), responses.height),
        "reasoning_characters_mean": _mean(reasonings.str.len_chars()),
        "distinct_reasoning_share": _ratio(reasonings.n_unique(), len(reasonings)),
        "compression_ratio": _compression_ratio(responses["response"]),
        "repeated_ngram_share": _repeated_ngram_share(responses["response"]),
    }
    return _present("rollout", values)


def _compression_ratio(texts: pl.Series) -> float | None:
    whole = "\n".join(texts.to_list()).encode()
    return len(whole) / len(bz2.compress(whole)) if whole else None


def _repeated_ngram_share(texts: pl.Series, length: int = 4) -> float | None:
    """Share of n-grams of words that repeat within a response; denominator: all n-grams of all responses."""
    num_repeated = num_all = 0
    for text, count in texts.value_counts().iter_rows():
        words = text.split()
        runs = list(zip(*(words[start:] for start in range(length)), strict=False))
        num_all += count * len(runs)
        num_repeated += count * (len(runs) - len(set(runs)))
    return _ratio(num_repeated, num_all)


def reward_metrics(rewards: pa.Table, turns: pa.Table) -> dict[str, float]:
    """Compute the metrics of rewards.

    Over valid trajectories: `return_mean`, `return_std`, `return_min`, `return_max`; `component/<name>_mean`, the mean
    over trajectories of the component's sum over turns. `in_group_std`: mean over groups of the standard deviation of
    the group's returns, over groups of at least two valid trajectories; `in_group_std_spread`: standard deviation of
    these over groups. `malformed_return_gap`: mean return of trajectories with a malformed response minus that of the
    others; above 0, malformed responses pay off, and the format will collapse. Imported trajectories whose source does
    not say which responses are well formed are excluded from it.

    Args:
        rewards: Dataset `rewards`.
        turns: Dataset `turns` that the rewards belong to.

    Returns:
        Names, each prefixed with `reward/`, and values; empty without any valid trajectory.
    """
    valid = pl.DataFrame(rewards.drop_columns(["normalised_return"])).filter("is_valid")
    frame = pl.DataFrame(turns.select(["trajectory_id", "status", "info"]))
    malformed = (
        frame.filter(~lacks(frame["info"], FORMAT))
        .group_by("trajectory_id", maintain_order=True)
        .agg(is_malformed=(pl.col("status") == "format_error").any())
    )
    trajectories = valid.unique("trajectory_id", maintain_order=True).join(
        malformed, on="trajectory_id", how="left", maintain_order="left"
    )
    returns = trajectories["trajectory_return"]
    group_stds = (
        trajectories.group_by("group_id", maintain_order=True)
        .agg(num_valid=pl.len(), std=pl.col("trajectory_return").std(ddof=0))
        .filter(pl.col("num_valid") >= 2)["std"]
    )
    values: dict[str, float | None] = {
        "return_mean": _mean(returns),
        "return_std": _number(returns.std(ddof=0)),
        "return_min": _number(returns.min()),
        "return_max": _number(returns.max()),
        "in_group_std": _mean(group_stds),
        "in_group_std_spread": _number(group_stds.std(ddof=0)),
    }
    by_format = {
        is_malformed: returns.filter(trajectories["is_malformed"] == is_malformed) for is_malformed in (True, False)
    }
    if all(len(part) > 0 for part in by_format.values()):
        values["malformed_return_gap"] = _mean(by_format[True]) - _mean(by_format[False])  # type: ignore[operator]
    components = valid.select("component_names", "component_values").explode("component_names", "component_values")
    for name, total in (
        components.group_by("component_names", maintain_order=True).agg(pl.col("component_values").sum()).rows()
    ):
        values[f"component/{name}_mean"] = _ratio(total, trajectories.height)
    return _present("reward", values)


def filter_metrics(selection: pa.Table) -> dict[str, float]:
    """Compute the metrics of the filter.

    Counts of groups: `num_groups`, `num_kept`, `num_invalid` (no valid trajectory), `num_zero_variance` (equal returns,
    among groups with a valid trajectory), `num_empty` (1 if nothing was kept, else 0, so that it can be summed over
    iterations). Shares: `kept_share` (denominator: all groups), `zero_variance_share` (denominator: groups with a valid
    trajectory). `num_kept_trajectories`: valid trajectories of kept groups. Means over groups: `kept_score_mean`,
    `dropped_score_mean` (those with a valid trajectory), `kept_success`, `dropped_success` likewise.

    Args:
        selection: Dataset `selection`.

    Returns:
        Names, each prefixed with `filter/`, and values. An empty selection yields only the counts.
    """
    frame = pl.DataFrame(selection.select(["num_valid", "score", "return_std", "success_rate", "kept"]))
    valid = frame.filter(pl.col("num_valid") > 0)
    kept, dropped = valid.filter("kept"), valid.filter(~pl.col("kept"))
    num_zero_variance = int((valid["return_std"] <= ZERO_VARIANCE_STD).sum())
    return _present(
        "filter",
        {
            "num_groups": frame.height,
            "num_kept": kept.height,
            "num_invalid": frame.height - valid.height,
            "num_zero_variance": num_zero_variance,
            "num_empty": float(kept.height == 0),
            "num_kept_trajectories": int(kept["num_valid"].sum()),
            "kept_share": _ratio(kept.height, frame.height),
            "zero_variance_share": _ratio(num_zero_variance, valid.height),
            "kept_score_mean": _mean(kept["score"]),
            "dropped_score_mean": _mean(dropped["score"]),
            "kept_success": _mean(kept["success_rate"]),
            "dropped_success": _mean(dropped["success_rate"]),
        },
    )


def attempt_metrics(selection: pa.Table, num_attempts: int) -> dict[str, float]:
    """Compute metrics of the attempts needed to collect enough groups (rollout.max_attempts).

    Counts: `num_attempts`, the number of rollouts, and of their groups `num_surplus`, which the strategy would have
    kept but which were no longer needed, and `num_outranked`, which were eligible but not kept by the strategy. With
    `num_kept`, `num_invalid` and `num_zero_variance` of `filter_metrics` they add up to `num_groups`, unless the filter
    may keep groups of equal returns.

    Args:
        selection: Dataset `selection` of all attempts.
        num_attempts: Number of attempts.

    Returns:
        Names, each prefixed with `filter/`, and values.
    """
    dropped = pl.DataFrame(selection.select(["kept", "reason"])).filter(~pl.col("kept"))["reason"]
    num_surplus = int(dropped.str.starts_with(SURPLUS).sum())
    num_outranked = int(dropped.str.starts_with(OUTRANKED).sum())
    return _present(
        "filter", {"num_attempts": num_attempts, "num_surplus": num_surplus, "num_outranked": num_outranked}
    )


def metrics_by_tag(turns: pa.Table, rewards: pa.Table, selection: pa.Table, tags: Iterable[str]) -> dict[str, float]:
    """Compute rollout, reward and filter metrics of each part.

    Args:
        turns: Dataset `turns`; column `env` is the tag.
        rewards: Dataset `rewards` for those turns.
        selection: Dataset `selection` for those turns.
        tags: Tags of the parts.

    Returns:
        `<name>/<tag>` -> value for the names in `BY_TAG`, as defined above, over the trajectories
        and groups of that part only. Undefined values are absent, also those of a part without any
        trajectory, except that counts are 0.
    """
    values: dict[str, float] = {}
    for tag in tags:
        played = turns.filter(pc.equal(turns["env"], tag))
        paid = rewards.filter(pc.is_in(rewards["trajectory_id"], played["trajectory_id"].combine_chunks()))
        decided = selection.filter(pc.equal(selection["env"], tag))
        metrics = rollout_metrics(played) | reward_metrics(paid, played) | filter_metrics(decided)
        values |= {f"{name}/{tag}": metrics[name] for name in BY_TAG if name in metrics}
    return values


def _mean(values: pl.Series) -> float | None:
    return _number(values.mean())


def _number(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type]


def _ratio(part: object, whole: object) -> float | None:
    numerator, denominator = _number(part), _number(whole)
    return numerator / denominator if numerator is not None and denominator else None


def _present(stage: str, values: dict[str, float | None]) -> dict[str, float]:
    """Return the values that are not None, under their full names."""
    present = {f"{stage}/{name}": float(value) for name, value in values.items() if value is not None}
    assert all(math.isfinite(value) for value in present.values()), f"not finite: {present}"
    return present
