"""The result of a sweep: every cell, scores over seeds, and the leaderboard.

(cells, their keys, outcomes, errors) --summarise--> SweepResult --> record, table, heat map, leaderboard
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from starpo.ragen.agents.evaluation.intervals import mean_interval, success_interval
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.studies.bootstrap import CONFIDENCE
from starpo.ragen.studies.outcomes import Counts, Outcome, Prompt, pooled
from starpo.ragen.studies.result import Difference, Part, StudyResult
from starpo.ragen.studies.sweep.cells import SweepCell
from starpo.ragen.studies.sweep.sweep import Sweep
from starpo.ragen.studies.sweep.transfer import Measured, Place, Transfer, difference, transfers


class CellResult(Part):
    """One cell: a checkpoint on a panel at a temperature with a seed."""

    run: str
    """Run that the checkpoint belongs to."""
    iteration: int
    """Number of iterations before it."""
    environment: str
    """Name of the panel."""
    temperature: float
    """Sampling temperature."""
    seed: int
    """Index of the batch of members."""
    checkpoint: str
    """Key of the checkpoint."""
    key: str
    """Key of its `episodes` and `metrics`."""
    error: str | None = None
    """Why it could not be evaluated."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """`success`, `success_low`, ... as the stage `evaluate` defines them; empty if it failed."""


class Score(Part):
    """A checkpoint on a panel at a temperature, pooled over seeds."""

    run: str
    """Run that the checkpoint belongs to."""
    iteration: int
    """Number of iterations before it."""
    environment: str
    """Name of the panel."""
    temperature: float
    """Sampling temperature."""
    seeds: list[int]
    """Seeds that were evaluated."""
    success: float
    """Share of episodes that reach the goal, without episodes that ended in an error and without prompts from which
    training of a compared checkpoint started."""
    low: float
    """Lower end of the 95% interval: Wilson's for one episode per prompt, otherwise from resampling prompts."""
    high: float
    """Upper end."""
    num_prompts: int
    """Number of initial states with an episode."""
    num_episodes: int
    """Number of episodes over all of them."""
    num_seen_prompts: int = 0
    """Number of excluded prompts of the panel: training of this or another compared checkpoint started from them."""
    seen_success: float | None = None
    """Success on the prompts from which its own training started; None without such prompts."""


class Standing(Part):
    """A checkpoint at a temperature: a row of the leaderboard."""

    rank: int | None
    """From 1; ties share a rank. None if not all of its cells were evaluated."""
    run: str
    """Run that the checkpoint belongs to."""
    iteration: int
    """Number of iterations before it."""
    temperature: float
    """Sampling temperature."""
    success: float | None
    """Mean over the environments; None as for `rank`."""
    low: float | None
    """Lower end of its 95% interval; see `ragen.agents.evaluation.intervals.mean_interval`."""
    high: float | None
    """Upper end."""
    difference: Difference | None
    """Difference from the first; None if this is the first, or if it has no rank."""
    by_environment: dict[str, float]
    """Panel -> success."""
    missing: list[str]
    """Panels on which a seed failed or was not evaluated."""


class SweepResult(StudyResult):
    """Result of a sweep. A function of stored cells alone: the same cells give the same bytes."""

    sweep: Sweep
    """The specification."""
    runs: list[str]
    """Runs whose checkpoints were evaluated."""
    environments: list[str]
    """Panels, in the order of the columns."""
    temperatures: list[float]
    """Sampling temperatures, ascending."""
    confidence: float = CONFIDENCE
    """Confidence level of the intervals."""
    waiting: dict[str, str]
    """Run -> requested checkpoints that did not exist yet."""
    cells: list[CellResult]
    """Every cell."""
    scores: list[Score]
    """Cells pooled over seeds; those without any evaluated seed are absent."""
    leaderboard: list[Standing]
    """Best first; those without a rank last."""
    trained_on: dict[str, str] = Field(default_factory=dict)
    """Run -> name of the environment that it trains on."""
    transfers: list[Transfer] = Field(default_factory=list)
    """For a matrix sweep: the effect of training on each run and panel."""

    @property
    def failures(self) -> dict[str, str]:
        """Label of a cell -> why it failed."""
        return {cell_label(cell): cell.error for cell in self.cells if cell.error is not None}

    @property
    def warnings(self) -> list[str]:
        """Caveats for reading the numbers."""
        said = []
        if sum(standing.rank is not None for standing in self.leaderboard) > 1:
            said.append(
                "the best of many is also the luckiest of them: its success is biased upwards, and the more so the "
                "more checkpoints are compared; evaluate it again with other seeds before quoting it"
            )
        said += [text for name in self.environments if (text := _seen_warning(name, self.scores))]
        unknown = {
            cell.run: cell.metrics["num_unknown_origins"]
            for cell in self.cells
            if "num_unknown_origins" in cell.metrics
        }
        said += [
            f"run {run}: {number:.0f} stages of its training are not in this store, so prompts that it started from "
            "may be counted"
            for run, number in unknown.items()
        ]
        errors = sum(cell.metrics.get("num_errors", 0.0) for cell in self.cells)
        if errors:
            said.append(f"{errors:.0f} episodes ended in an environment error or at a deadline and are not counted")
        said += [f"run {run} does not have {what} yet" for run, what in self.waiting.items()]
        return said


def cell_label(cell: CellResult) -> str:
    """Return the display name of a cell, the same as `SweepCell.label`."""
    return f"{cell.run}@{cell.iteration} {cell.environment} T={cell.temperature:g} seed={cell.seed}"


def summarise(
    sweep: Sweep,
    cells: Sequence[SweepCell],
    keys: Sequence[str],
    outcomes: Mapping[str, Outcome],
    errors: Mapping[str, str],
    waiting: Mapping[str, str],
) -> SweepResult:
    """Summarise the measurements of the cells.

    Args:
        sweep: The specification.
        cells: The cells that it expanded to.
        keys: Keys of their artifacts, aligned with `cells`.
        outcomes: Label of a cell -> its outcome.
        errors: Label of a cell -> why it failed.
        waiting: Run -> requested checkpoints that do not exist yet.
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
    counts, seen = _pooled_counts(found, outcomes)
    return SweepResult(
        name=sweep.name,
        sweep=sweep,
        runs=list(dict.fromkeys(cell.run for cell in cells)),
        environments=environments,
        temperatures=sorted({cell.temperature for cell in found}),
        waiting=dict(waiting),
        cells=found,
        scores=[_score(*place, seeds, count, seen[place]) for place, (seeds, count) in counts.items() if count],
        leaderboard=_leaderboard(found, counts, seen, environments),
        trained_on={cell.run: cell.trained_on for cell in cells},
        transfers=transfers(counts) if sweep.is_matrix else [],
    )


class _Seen(NamedTuple):
    """Prompts of a panel that no score counts, and a checkpoint's counts on those seen in its own training."""

    prompts: frozenset[Prompt]
    own: Counts


def _seen_by_any(cells: Sequence[CellResult], outcomes: Mapping[str, Outcome]) -> dict[str, frozenset[Prompt]]:
    """Return panel -> prompts from which training of a compared checkpoint started; excluded for all checkpoints, so
    that all are compared on the same prompts."""
    seen: dict[str, frozenset[Prompt]] = {}
    for cell in cells:
        outcome = outcomes.get(cell_label(cell))
        prompts = frozenset(outcome.seen) if outcome else frozenset[Prompt]()
        seen[cell.environment] = seen.get(cell.environment, frozenset()) | prompts
    return seen


def _pooled_counts(cells: Sequence[CellResult], outcomes: Mapping[str, Outcome]) -> tuple[Measured, dict[Place, _Seen]]:
    seen_by_any = _seen_by_any(cells, outcomes)
    places: dict[Place, list[CellResult]] = {}
    for cell in cells:
        places.setdefault((cell.run, cell.iteration, cell.temperature, cell.environment), []).append(cell)
    counts: Measured = {}
    seen: dict[Place, _Seen] = {}
    for place, members in places.items():
        measured = [cell for cell in members if cell_label(cell) in outcomes]
        found = [outcomes[cell_label(cell)] for cell in measured]
        excluded = seen_by_any[place[-1]]
        pool = pooled(outcome.counts for outcome in found)
        kept = {prompt: count for prompt, count in pool.items() if prompt not in excluded}
        counts[place] = ([cell.seed for cell in measured], kept)
        seen[place] = _Seen(excluded, pooled(outcome.seen for outcome in found))
    return counts, seen


def _seen_warning(environment: str, scores: Sequence[Score]) -> str:
    """Format how many prompts of a panel are excluded, and the success on them; empty if there are none."""
    own = [score for score in scores if score.environment == environment and score.num_seen_prompts]
    if not own:
        return ""
    number, total = own[0].num_seen_prompts, own[0].num_seen_prompts + max(score.num_prompts for score in own)
    text = (
        f"{environment}: {number} of {total} prompts are states from which training of a compared checkpoint started; "
        "no score counts them"
    )
    pairs = [(score.seen_success, score.success) for score in own if score.seen_success is not None]
    if not pairs:
        return text
    seen, unseen = (math.fsum(part) / len(pairs) for part in zip(*pairs, strict=True))
    return (
        f"{text} (success where a checkpoint's own training started {seen:.3f}, on the prompts that count {unseen:.3f})"
    )


def _score(
    run: str, iteration: int, temperature: float, environment: str, seeds: list[int], counts: Counts, seen: _Seen
) -> Score:
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
        num_seen_prompts=len(seen.prompts),
        seen_success=_share(seen.own),
    )


def _share(counts: Counts) -> float | None:
    """Return successes divided by episodes; None without an episode."""
    trials = sum(number for _, number in counts.values())
    return sum(number for number, _ in counts.values()) / trials if trials else None


def _leaderboard(
    cells: Sequence[CellResult], counts: Measured, seen: Mapping[Place, _Seen], environments: Sequence[str]
) -> list[Standing]:
    all_seeds: dict[Place, int] = {}
    for cell in cells:
        place = cell.run, cell.iteration, cell.temperature, cell.environment
        all_seeds[place] = all_seeds.get(place, 0) + 1
    entrants: dict[tuple[str, int, float], list[Score]] = {}
    for place, (seeds, count) in counts.items():
        scores = entrants.setdefault(place[:3], [])
        if count and len(seeds) == all_seeds[place]:
            scores.append(_score(*place, seeds, count, seen[place]))
    complete = {who: scores for who, scores in entrants.items() if len(scores) == len(environments)}
    means = {who: math.fsum(score.success for score in scores) / len(scores) for who, scores in complete.items()}
    order = sorted(means, key=lambda who: -means[who])  # stable: ties stay in the requested order
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
                difference=difference(counts, who, order[0], environments) if is_ranked and who != order[0] else None,
                by_environment={score.environment: score.success for score in scores},
                missing=[name for name in environments if name not in {score.environment for score in scores}],
            )
        )
    return standings
