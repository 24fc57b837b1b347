"""Numbers that follow from stored rows by arithmetic alone, so they can be recomputed on any machine by any version.

    episodes, metrics, headline -> evaluation_differences      turns, headline -> rollout_differences
    metrics, headline -> update_differences

They may differ only by rounding (`ragen.runs.verify.differences.is_close`).
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.agents.evaluation.summary import summarise
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.runs.verify.differences import is_close
from starpo.schemas.datasets import SEEN, UNKNOWN_FINISH


def evaluation_differences(episodes: pa.Table, metrics: pa.Table, headline: Mapping[str, float]) -> Iterator[str]:
    """Compare an evaluation's metrics with its episodes, and with the headline of its manifest.

    Args:
        episodes: Dataset `episodes`.
        metrics: Dataset `metrics` of the same evaluation. Statistics of the engine, and the number of lost stages of
            the checkpoint's training, do not follow from episodes and are not compared.
        headline: Headline of the manifest.
    """
    yield from update_differences(metrics, headline)
    values = metric_values(metrics)
    seen_episodes = episodes.filter(pc.ends_with(episodes["cell"], SEEN))
    num_seen = float(pc.count_distinct(seen_episodes["initial_state_digest"]).as_py())
    expected = summarise(episodes) | {name: num_seen for name in values if name.endswith("/num_seen_prompts")}
    elsewhere = {name for name in values if "/engine_" in name or name.endswith("/num_unknown_origins")}
    for name in sorted(expected.keys() | values.keys() - elsewhere):
        if not is_close(values.get(name), expected.get(name)):
            yield f"metrics has {quoted(name)} = {values.get(name)}, the episodes give {expected.get(name)}"


def folding_differences(episodes: pa.Table, turns: pa.Table) -> Iterator[str]:
    """Compare episodes with their turns.

    Args:
        episodes: Dataset `episodes`.
        turns: Dataset `episode_turns` of the same evaluation. Where tokens are unknown, they are not counted.
    """
    order = ["env_seed", "member"]
    skipped = {"cell", "temperature"}
    if pc.any(pc.equal(turns["finish_reason"], UNKNOWN_FINISH)).as_py():
        skipped.add("num_response_tokens")
    names = [name for name in episodes.schema.names if name not in skipped]
    stored = episodes.select(names).sort_by([(name, "ascending") for name in order])
    folded = fold_episodes(turns, "", 0.0).select(names).sort_by([(name, "ascending") for name in order])
    if stored.num_rows != folded.num_rows:
        yield f"there are {stored.num_rows} episodes, their turns give {folded.num_rows}"
        return
    for name in names:
        if not stored[name].equals(folded[name]):
            yield f"the episodes' {name} is not that of their turns"


def rollout_differences(turns: pa.Table, headline: Mapping[str, float]) -> Iterator[str]:
    """Compare the headline of a rollout's manifest with its turns."""
    turns = turns.filter(pc.not_equal(turns["origin"], "greedy"))
    goals = turns.filter(turns["success"])
    for name, rows in {"num_trajectories": turns, "num_successful": goals}.items():
        count = float(pc.count_distinct(rows["trajectory_id"]).as_py())
        if name in headline and float(headline[name]) != count:
            yield f"{name} in the manifest's headline is {headline[name]}, the turns give {count:.0f}"


def update_differences(metrics: pa.Table, headline: Mapping[str, float]) -> Iterator[str]:
    """Compare the headline of a manifest with the metrics stored beside it."""
    values = metric_values(metrics)
    for name in sorted(values.keys() | headline.keys()):
        if not is_close(headline.get(name), values.get(name)):
            yield f"{quoted(name)} in the manifest's headline is {headline.get(name)}, in metrics {values.get(name)}"
