"""Each part of a mixture by itself: the metrics that everybody looks at, as `<name>/<tag>`."""

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
"""What is measured of each part."""


def metrics_by_tag(turns: pa.Table, rewards: pa.Table, selection: pa.Table, tags: Iterable[str]) -> dict[str, float]:
    """What was played, paid and kept of each part.

    Args:
        turns: Dataset `turns`; the tag is its column `env`.
        rewards: Dataset `rewards`, of those turns.
        selection: Dataset `selection`, of those turns.
        tags: Of the parts.

    Returns:
        `<name>/<tag>` -> value for the names `BY_TAG`, as `ragen.evidence.diagnostics.metrics` defines them, over the
        part's trajectories and groups alone. A number that does not exist, of a part of which nothing was played too,
        is absent, except that a count is 0.
    """
    values: dict[str, float] = {}
    for tag in tags:
        played = turns.filter(pc.equal(turns["env"], tag))
        paid = rewards.filter(pc.is_in(rewards["trajectory_id"], played["trajectory_id"].combine_chunks()))
        decided = selection.filter(pc.equal(selection["env"], tag))
        found = rollout_metrics(played) | reward_metrics(paid, played) | filter_metrics(decided)
        values |= {f"{name}/{tag}": found[name] for name in BY_TAG if name in found}
    return values
