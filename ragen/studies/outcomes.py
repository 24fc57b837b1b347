"""Outcomes of stored evaluations, by prompt.

run -> its evaluate stages -> {panel: {iteration: Rates}}
episodes, their manifest -> Outcome
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from starpo.ragen.agents.evaluation.comparison import COUNTED, Counts, Prompt, counts_by_prompt
from starpo.ragen.agents.evaluation.summary import COST, SUMMED, total_episodes
from starpo.ragen.learning.control.collapse import SUCCESS
from starpo.ragen.learning.metrics.table import Series, metric_series
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of

Rates = dict[Prompt, float]
"""Prompt -> share of its episodes that succeed."""
Evaluations = dict[str, dict[int, Rates]]
"""Panel -> iteration, ascending -> success by prompt."""

_STAGE = "evaluate:"
_TRAINING = ("rollout", "reward", "variance_filter", "update")


@dataclass(frozen=True)
class CellOutcome:
    """An evaluated cell.

    Attributes:
        headline: Headline metrics of the stage: name without prefix -> value; see `ragen.agents.evaluation.summary`.
        counts: Prompt -> (successes, episodes), without episodes that ended in an error; only prompts from which
            training of the checkpoint never started.
        seen_counts: The same for the prompts from which it started.
        returns: Prompt -> (sum of returns, episodes), for the prompts of `counts`.
        totals: What its episodes add up to, whichever prompts they started from (`evaluation.summary.total_episodes`);
            also the `seconds` that the stage took and the `cost` of its engine, where they are known.
    """

    headline: dict[str, float]
    counts: Counts
    seen_counts: Counts = field(default_factory=dict)
    returns: Counts = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)


def read_outcome(store: Store, key: str, environment: str) -> CellOutcome:
    """Read a cell.

    Args:
        store: The store that has it.
        key: Key of its episodes.
        environment: Name of its panel.

    Raises:
        StoreError: If it is missing or damaged.
    """
    prefix = f"evaluation/{environment}/"
    manifest = store.manifest("episodes", key)
    headline = {name.removeprefix(prefix): float(v) for name, v in manifest.headline.items() if name.startswith(prefix)}
    spent = {"seconds": manifest.provenance.get("seconds"), "cost": headline.get(COST)}
    episodes = store.read_table("episodes", key, columns=list(dict.fromkeys([*COUNTED, *SUMMED])))
    counts, seen_counts = counts_by_prompt(episodes)
    returns, _ = counts_by_prompt(episodes, "episode_return")
    totals = total_episodes(episodes) | {name: float(v) for name, v in spent.items() if v is not None}
    return CellOutcome(headline, counts, seen_counts, returns, totals)


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


def read_training_success(store: Store, run: str) -> Series:
    """Read the success of a run in training, by iteration.

    Raises:
        StoreError: If an artifact is missing or damaged.
    """
    measured = [stages["diagnose"]["metrics"] for stages in store.runs.iterations(run).values() if "diagnose" in stages]
    return metric_series(store.read_table("metrics", key) for key in dict.fromkeys(measured)).get(SUCCESS, {})


def read_seconds(store: Store, run: str) -> Series:
    """Return iteration -> wall-clock seconds spent before it in the run's rollouts, rewards, filters and updates.

    Each stage of every attempt is counted once, with the time it took when it was computed, in whichever run that was.
    Warm start, evaluations, probes and audits are not counted. With `rollout.staleness` = 1 a rollout and an update run
    concurrently, and both are counted.

    Raises:
        StoreError: If a manifest is missing or damaged.
    """
    spent, seconds = 0.0, {}
    counted: set[tuple[str, str]] = set()
    for iteration, stages in store.runs.iterations(run).items():
        seconds[iteration] = spent
        for stage, keys in stages.items():
            made = {*keys.items()} - counted if kind_of(stage) in _TRAINING else set()
            counted |= made
            manifests = (store.lasting_manifest(kind, key) for kind, key in made)
            times = (manifest.provenance.get("seconds", 0.0) for manifest in manifests)
            spent += max((float(time) for time in times), default=0.0)
    return seconds


def success_by_prompt(store: Store, key: str) -> Rates:
    """Return the success rate of each prompt in a dataset `episodes`, given its key; unseen prompts only.

    Raises:
        StoreError: If it is missing or damaged.
    """
    return rates(counts_by_prompt(store.read_table("episodes", key, columns=COUNTED))[0])


def rates(counts: Counts) -> Rates:
    """Return the share of successful episodes for each prompt."""
    return {prompt: successes / trials for prompt, (successes, trials) in counts.items()}


def pooled(several: Iterable[Counts]) -> dict[Prompt, tuple[float, int]]:
    """Sum the counts of several seeds of one policy on one panel, by prompt."""
    counts: dict[Prompt, tuple[float, int]] = {}
    for one in several:
        for prompt, (total, trials) in one.items():
            so_far = counts.get(prompt, (0, 0))
            counts[prompt] = (so_far[0] + total, so_far[1] + trials)
    return counts
