"""Metrics of each part of a mixture: the most common ones, as `<name>/<tag>`."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.evidence.diagnostics.metrics import filter_metrics, reward_metrics, rollout_metrics

BY_TAG = (
    "rollout/success_rate",
    "rollout/format_ok",
    "rollout/response_length_mean",
    "rollout/entropy",
    "reward/return_mean",
    "reward/in_group_std",
    "filter/num_kept",
    "filter/kept_share",
)
"""Metrics measured for each part."""


def metrics_by_tag(turns: pa.Table, rewards: pa.Table, selection: pa.Table, tags: Iterable[str]) -> dict[str, float]:
    """Compute rollout, reward and filter metrics of each part.

    Args:
        turns: Dataset `turns`; column `env` is the tag.
        rewards: Dataset `rewards` for those turns.
        selection: Dataset `selection` for those turns.
        tags: Tags of the parts.

    Returns:
        `<name>/<tag>` -> value for the names in `BY_TAG`, as defined in `ragen.evidence.diagnostics.metrics`, over the
        trajectories and groups of that part only. Undefined values are absent, also those of a part without any
        trajectory, except that counts are 0.
    """
    values: dict[str, float] = {}
    for tag in tags:
        played = turns.filter(pc.equal(turns["env"], tag))
        paid = rewards.filter(pc.is_in(rewards["trajectory_id"], played["trajectory_id"].combine_chunks()))
        decided = selection.filter(pc.equal(selection["env"], tag))
        found = rollout_metrics(played) | reward_metrics(paid, played) | filter_metrics(decided)
        values |= {f"{name}/{tag}": found[name] for name in BY_TAG if name in found}
    return values
