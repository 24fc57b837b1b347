"""The result of a sweep: every cell, its scores over seeds, and who leads.

(cells, their keys, outcomes, errors) --summarise--> SweepResult --> record, table, heat map, leaderboard
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from ragen.ablation.bootstrap import CONFIDENCE, paired_difference
from ragen.ablation.evaluations import Prompt
from ragen.evaluate.intervals import mean_interval, success_interval
from ragen.seeding import derive_seed
from ragen.sweep.cells import SweepCell
from ragen.sweep.outcomes import Outcome, pooled
from ragen.sweep.sweep import Sweep

Counts = Mapping[Prompt, tuple[int, int]]
"""Prompt -> (successes, episodes)."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class CellResult(_Part):
    """One cell: a checkpoint on a panel at a temperature with a seed."""

    run: str
    """Whose checkpoint."""
    iteration: int
    """Iterations before it."""
    environment: str
    """Name of the panel."""
    temperature: float
    """Of sampling."""
    seed: int
    """Which batch of members."""
    checkpoint: str
    """Key of the checkpoint."""
    key: str
    """Of `episodes` and `metrics`."""
    error: str | None = None
    """Why it could not be evaluated."""
    metrics: dict[str, float] = {}
    """`success`, `success_low`, ... as the stage `evaluate` defines them; empty where it failed."""


class Score(_Part):
    """A checkpoint on a panel at a temperature, its seeds taken together."""

    run: str
    """Whose checkpoint."""
    iteration: int
    """Iterations before it."""
    environment: str
    """Name of the panel."""
    temperature: float
    """Of sampling."""
    seeds: list[int]
    """Those that were evaluated."""
    success: float
    """Share of episodes that reach the goal, errors left out."""
    low: float
    """Lower end of the 95% interval: Wilson's for one episode a prompt, else from resampling prompts."""
    high: float
    """Upper end."""
    num_prompts: int
    """Initial states with an episode."""
    num_episodes: int
    """Over all of them."""


class Difference(_Part):
    """Success minus that of the first of the leaderboard, prompt by prompt."""

    mean: float
    """Over prompts."""
    low: float
    """Lower end of the paired bootstrap interval; see `ragen.ablation.bootstrap`."""
    high: float
    """Upper end."""


class Standing(_Part):
    """A checkpoint at a temperature: a line of the leaderboard."""

    rank: int | None
    """From 1; equal successes share one. None: not all of its cells were evaluated."""
    run: str
    """Whose checkpoint."""
    iteration: int
    """Iterations before it."""
    temperature: float
    """Of sampling."""
    success: float | None
    """Mean over the environments. None: as for `rank`."""
    low: float | None
    """Lower end of its 95% interval; see `ragen.evaluate.intervals.mean_interval`."""
    high: float | None
    """Upper end."""
    difference: Difference | None
    """To the first. None: this is the first, or it has no rank."""
    by_environment: dict[str, float]
    """Panel -> success."""
    missing: list[str]
    """Panels on which a seed failed or was not evaluated."""


class SweepResult(_Part):
    """A sweep. Made of stored cells alone: the same cells give the same bytes."""

    name: str
    """Of the sweep."""
    sweep: Sweep
    """What was asked for."""
    runs: list[str]
    """Whose checkpoints were evaluated."""
    environments: list[str]
    """Panels, in the order of the columns."""
    temperatures: list[float]
    """Ascending."""
    confidence: float = CONFIDENCE
    """Of the intervals."""
    waiting: dict[str, str]
    """Run -> what was asked for and was not there yet."""
    cells: list[CellResult]
    """Every cell."""
    scores: list[Score]
    """Cells taken together over seeds; those of which no seed was evaluated are not here."""
    leaderboard: list[Standing]
    """The best first; those without a rank last."""

    @property
    def failures(self) -> dict[str, str]:
        """Label of a cell -> why it failed."""
        return {cell_label(cell): cell.error for cell in self.cells if cell.error is not None}

    @property
    def warnings(self) -> list[str]:
        """What to keep in mind when reading the numbers."""
        said = []
        if sum(standing.rank is not None for standing in self.leaderboard) > 1:
            said.append(
                "the first of many is also the luckiest of them: its success is too high, and the more so the more "
                "checkpoints are compared; evaluate it again with other seeds before quoting it"
            )
        errors = sum(cell.metrics.get("num_errors", 0.0) for cell in self.cells)
        if errors:
            said.append(f"{errors:.0f} episodes ended in an error of environment or deadline and are in no share")
        said += [f"run {run} does not have {what} yet" for run, what in self.waiting.items()]
        return said


def cell_label(cell: CellResult) -> str:
    """What people call a cell; that of `SweepCell.label`."""
    return f"{cell.run}@{cell.iteration} {cell.environment} T={cell.temperature:g} seed={cell.seed}"


def summarise(
    sweep: Sweep,
    cells: Sequence[SweepCell],
    keys: Sequence[str],
    outcomes: Mapping[str, Outcome],
    errors: Mapping[str, str],
    waiting: Mapping[str, str],
) -> SweepResult:
    """Summarise what the cells measured.

    Args:
        sweep: What was asked for.
        cells: What it came to.
        keys: Of their artifacts, aligned with `cells`.
        outcomes: Label of a cell -> what it says.
        errors: Label of a cell -> why it failed.
        waiting: Run -> what was asked for and is not there yet.
    """
    environments = list(dict.fromkeys(cell.environment for cell in cells))
    found = [
        CellResult(
            run=cell.run, iteration=cell.iteration, environment=cell.environment, seed=cell.seed,
            temperature=cell.evaluation.temperature, checkpoint=cell.checkpoint, key=key,
            error=errors.get(cell.label), metrics=outcomes[cell.label].headline if cell.label in outcomes else {},
        )
        for cell, key in zip(cells, keys, strict=True)
    ]  # fmt: skip
    counts = _pooled_counts(found, outcomes)
    return SweepResult(
        name=sweep.name,
        sweep=sweep,
        runs=list(dict.fromkeys(cell.run for cell in cells)),
        environments=environments,
        temperatures=sorted({cell.temperature for cell in found}),
        waiting=dict(waiting),
        cells=found,
        scores=[_score(*place, seeds, count) for place, (seeds, count) in counts.items() if count],
        leaderboard=_leaderboard(found, counts, environments),
    )


_Place = tuple[str, int, float, str]
"""Run, iteration, temperature, environment."""
_Seeds = dict[_Place, tuple[list[int], Counts]]


def _pooled_counts(cells: Sequence[CellResult], outcomes: Mapping[str, Outcome]) -> _Seeds:
    places: dict[_Place, list[CellResult]] = {}
    for cell in cells:
        places.setdefault((cell.run, cell.iteration, cell.temperature, cell.environment), []).append(cell)
    counts: _Seeds = {}
    for place, members in places.items():
        measured = [cell for cell in members if cell_label(cell) in outcomes]
        pool = pooled([outcomes[cell_label(cell)] for cell in measured])
        counts[place] = ([cell.seed for cell in measured], pool)
    return counts


def _score(run: str, iteration: int, temperature: float, environment: str, seeds: list[int], counts: Counts) -> Score:
    successes, trials = (np.array(part) for part in zip(*counts.values(), strict=True))
    low, high = success_interval(successes, trials, derive_seed("evaluation", environment, "bootstrap"), CONFIDENCE)
    return Score(
        run=run,
        iteration=iteration,
        environment=environment,
        temperature=temperature,
        seeds=seeds,
        success=float(successes.sum() / trials.sum()),
        low=low,
        high=high,
        num_prompts=len(trials),
        num_episodes=int(trials.sum()),
    )


def _leaderboard(cells: Sequence[CellResult], counts: _Seeds, environments: Sequence[str]) -> list[Standing]:
    all_seeds: dict[_Place, int] = {}
    for cell in cells:
        place = cell.run, cell.iteration, cell.temperature, cell.environment
        all_seeds[place] = all_seeds.get(place, 0) + 1
    entrants: dict[tuple[str, int, float], list[Score]] = {}
    for place, (seeds, count) in counts.items():
        scores = entrants.setdefault(place[:3], [])
        if count and len(seeds) == all_seeds[place]:
            scores.append(_score(*place, seeds, count))
    complete = {who: scores for who, scores in entrants.items() if len(scores) == len(environments)}
    means = {who: math.fsum(score.success for score in scores) / len(scores) for who, scores in complete.items()}
    order = sorted(means, key=lambda who: -means[who])  # stable: of equals, the first asked for
    standings = []
    for who in [*order, *(who for who in entrants if who not in complete)]:
        scores = entrants[who]
        run, iteration, temperature = who
        is_ranked = who in complete
        low, high = (
            mean_interval([score.success for score in scores], [(score.low, score.high) for score in scores])
            if is_ranked
            else (None, None)
        )
        standings.append(
            Standing(
                rank=1 + sum(mean > means[who] for mean in means.values()) if is_ranked else None,
                run=run,
                iteration=iteration,
                temperature=temperature,
                success=means.get(who),
                low=low,
                high=high,
                difference=_difference(counts, who, order[0], environments) if is_ranked and who != order[0] else None,
                by_environment={score.environment: score.success for score in scores},
                missing=[name for name in environments if name not in {score.environment for score in scores}],
            )
        )
    return standings


def _difference(
    counts: _Seeds, who: tuple[str, int, float], first: tuple[str, int, float], environments: Sequence[str]
) -> Difference | None:
    """Over the prompts of all environments; None: they have no prompt in common."""
    rates = []
    for entrant in (who, first):
        rates.append(
            {
                (environment, prompt): successes / trials
                for environment in environments
                for prompt, (successes, trials) in counts[(*entrant, environment)][1].items()
            }
        )
    common = [prompt for prompt in rates[0] if prompt in rates[1]]
    if not common:
        return None
    found = paired_difference(*(np.array([[rate[prompt] for prompt in common]]) for rate in rates))
    return Difference(mean=found.mean, low=found.low, high=found.high)
