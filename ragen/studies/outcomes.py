"""What stored evaluations say, prompt by prompt.

run -> its evaluate stages -> {panel: {iteration: Rates}}
episodes, their manifest -> Outcome
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from starpo.ragen.agents.evaluation.episodes import SEEN
from starpo.ragen.evidence.diagnostics.series import Series, metric_series
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of
from starpo.schemas.datasets import ERROR_STATUSES

Prompt = tuple[int, str]
"""A prompt of a panel: its environment seed and the digest of its initial state."""
Counts = Mapping[Prompt, tuple[int, int]]
"""Prompt -> (successes, episodes); a prompt whose episodes all ended in an error is absent."""
Rates = dict[Prompt, float]
"""Prompt -> share of its episodes that succeed."""
Evaluations = dict[str, dict[int, Rates]]
"""Panel -> iteration, ascending -> success by prompt."""

_STAGE = "evaluate:"
_TRAINING = ("rollout", "reward", "variance_filter", "update")


@dataclass(frozen=True)
class Outcome:
    """An evaluated cell.

    Attributes:
        headline: What the stage says of it: name, without its prefix -> value; see `ragen.agents.evaluation.summary`.
        counts: Prompt -> (successes, episodes), without those that ended in an error; prompts in which no training of
            the checkpoint began.
        seen: The same of the prompts in which it began.
    """

    headline: dict[str, float]
    counts: Counts
    seen: Counts = field(default_factory=dict)


def read_outcome(store: Store, key: str, environment: str) -> Outcome:
    """Read a cell.

    Args:
        store: Where it is.
        key: Of its episodes.
        environment: Name of its panel.

    Raises:
        StoreError: If it is missing or damaged.
    """
    prefix = f"evaluation/{environment}/"
    headline = store.manifest("episodes", key).headline
    measured = {name.removeprefix(prefix): float(v) for name, v in headline.items() if name.startswith(prefix)}
    return Outcome(measured, *_counts(store, key))


def read_evaluations(store: Store, run: str) -> Evaluations:
    """Read the evaluations of a run.

    Raises:
        StoreError: If an artifact is missing or damaged.
    """
    panels: Evaluations = {}
    for iteration, stages in store.runs.iterations(run).items():
        for stage, keys in stages.items():
            if stage.startswith(_STAGE):
                panel = panels.setdefault(stage.removeprefix(_STAGE), {})
                panel[iteration] = success_by_prompt(store, keys["episodes"])
    return panels


def read_series(store: Store, run: str, stages: Collection[str], names: tuple[str, ...]) -> dict[str, Series]:
    """Metrics of a run, by iteration.

    Args:
        store: Where it is.
        run: Its name.
        stages: Those whose metrics are read.
        names: Names of metrics, or beginnings of names that end in '/'.

    Raises:
        StoreError: If an artifact is missing or damaged.
    """
    recorded = store.runs.iterations(run).values()
    keys = dict.fromkeys(
        keys["metrics"] for of in recorded for stage, keys in of.items() if stage in stages and "metrics" in keys
    )
    tables = [store.read_table("metrics", key) for key in keys]
    series = metric_series(pa.concat_tables(tables)) if tables else {}
    beginnings = tuple(name for name in names if name.endswith("/"))
    return {name: values for name, values in series.items() if name in names or name.startswith(beginnings)}


def read_seconds(store: Store, run: str) -> Series:
    """Iteration -> wall-clock seconds that the run's rollouts, rewards, filters and updates had taken before it.

    Each stage, of every attempt, is counted once, as long as it took when it was made, in whichever run that was. Warm
    start, evaluations, probes and audits are not counted. With `rollout.staleness` = 1 a rollout and an update run side
    by side, and both are counted.

    Raises:
        StoreError: If a manifest is missing or damaged.
    """
    spent, seconds = 0.0, {}
    seen: set[tuple[str, str]] = set()
    for iteration, stages in store.runs.iterations(run).items():
        seconds[iteration] = spent
        for stage, keys in stages.items():
            made = {*keys.items()} - seen if kind_of(stage) in _TRAINING else set()
            seen |= made
            manifests = (store.lasting_manifest(kind, key) for kind, key in made)
            times = (manifest.provenance.get("seconds", 0.0) for manifest in manifests)
            spent += max((float(time) for time in times), default=0.0)
    return seconds


def success_by_prompt(store: Store, key: str) -> Rates:
    """Success of the prompts in a dataset `episodes`, by its key; of those in which training never began.

    Raises:
        StoreError: If it is missing or damaged.
    """
    return rates(_counts(store, key)[0])


def rates(counts: Counts) -> Rates:
    """Share of the episodes of each prompt that succeed."""
    return {prompt: successes / trials for prompt, (successes, trials) in counts.items()}


def pooled(several: Iterable[Counts]) -> dict[Prompt, tuple[int, int]]:
    """Counts of several seeds of one policy on one panel, added up prompt by prompt."""
    counts: dict[Prompt, tuple[int, int]] = {}
    for one in several:
        for prompt, (successes, trials) in one.items():
            so_far = counts.get(prompt, (0, 0))
            counts[prompt] = (so_far[0] + successes, so_far[1] + trials)
    return counts


def _counts(store: Store, key: str) -> tuple[Counts, Counts]:
    """Those of prompts that training never began in, and of the others."""
    columns = ["cell", "env_seed", "initial_state_digest", "status", "success"]
    episodes = pl.DataFrame(store.read_table("episodes", key, columns=columns))
    counts = (
        episodes.filter(pl.col("status").is_in(ERROR_STATUSES).not_())
        .group_by(pl.col("cell").str.ends_with(SEEN), "env_seed", "initial_state_digest", maintain_order=True)
        .agg(successes=pl.col("success").sum(), trials=pl.len())
    )
    parts: tuple[dict[Prompt, tuple[int, int]], ...] = ({}, {})
    for is_seen, seed, digest, successes, trials in counts.iter_rows():
        parts[is_seen][seed, digest] = (successes, trials)
    return parts[0], parts[1]
