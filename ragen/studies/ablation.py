"""The result of an ablation: every cell's success, and its difference from the base.

(cells, outcomes of their runs) --summarise--> AblationResult --> record, table, plot
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pydantic import Field, JsonValue

from starpo.ragen.agents.evaluation.comparison import Prompt
from starpo.ragen.agents.evaluation.paired import NUM_RESAMPLES, SEED, paired_difference
from starpo.ragen.evidence.diagnostics.fall import MIN_POINTS, fall
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.studies.cells import Cell
from starpo.ragen.studies.finding import Expected, judge_alike, judge_end, judge_fall
from starpo.ragen.studies.grid import MIN_SEEDS, Grid
from starpo.ragen.studies.outcomes import Evaluations, Rates
from starpo.ragen.studies.ranks import RankCorrelation, order_of_cells
from starpo.ragen.studies.result import Difference, ResultPart, StudyResult

_ROUNDING = 1e-12
"""Means closer together than this are ties, of which the earliest is the peak."""


class MatchedDifference(Difference):
    """A cell's success at its last evaluation minus the base's, over matched seeds and prompts."""

    per_seed: dict[int, float]
    """Seed -> difference, for the seeds in which both cells finished."""
    num_prompts: int
    """Number of prompts on which both cells were measured."""


class PanelResult(ResultPart):
    """A cell on one panel; means are over the seeds that finished, and over prompts."""

    first: float | None
    """Mean success at iteration 0, before any update; None if it was not evaluated there."""
    last: float
    """Mean success at the last evaluation of each run."""
    last_iteration: int
    """Number of updates before it."""
    last_low: float | None = None
    """Lower end of the bootstrap interval of `last`, over seeds and prompts."""
    last_high: float | None = None
    """Upper end."""
    peak: float | None
    """The largest mean success of any evaluation, which is biased upwards as the maximum of noisy measurements; None if
    at no iteration all seeds were evaluated."""
    peak_iteration: int | None
    """Number of updates before it."""
    difference: MatchedDifference | None
    """Difference from the base; None if this is the base, or if no seed finished in both."""
    curve: dict[int, float]
    """Updates -> mean success, at iterations where all seeds were evaluated."""
    seed_curves: dict[int, dict[int, float]]
    """Seed -> updates -> success."""


class EqualTime(ResultPart):
    """A cell on the training environment's panel after training for the same time as the whole run of the base.

    Success is interpolated linearly in time between two evaluations, prompt by prompt.
    """

    relative_seconds: float
    """Training seconds of its whole runs divided by the base's; mean over seeds."""
    updates: dict[int, float]
    """Seed -> updates within the base's training time, interpolated between evaluations; at most those of the run."""
    success: float
    """Mean over seeds and prompts."""
    difference: MatchedDifference | None
    """Difference from the base at its end."""


class CellResult(ResultPart):
    """A cell and the outcomes of its runs."""

    label: str
    """Display name."""
    values: dict[str, JsonValue]
    """Axis -> value."""
    is_base: bool
    """Whether it is the cell that the others are compared with."""
    runs: dict[int, str]
    """Seed -> name of the run."""
    errors: dict[int, str]
    """Seed -> why its run failed."""
    fell: dict[int, int | None] = Field(default_factory=dict)
    """Seed -> iteration at which training success had halved for good; None if it never did."""
    at_equal_time: EqualTime | None = None
    """Result after training for as long as the base, if the grid's figure needs it; None for the base."""
    panels: dict[str, PanelResult]
    """Results by the environment's name; empty if no run finished."""


class AblationResult(StudyResult):
    """Result of an ablation. A function of stored runs alone: the same runs give the same bytes."""

    grid: Grid
    """The specification."""
    panel: str
    """The panel of the training environment, evaluated throughout; the others are evaluated only first and last."""
    num_resamples: int = NUM_RESAMPLES
    """Number of bootstrap resamples."""
    bootstrap_seed: int = SEED
    """Seed of the bootstrap."""
    cells: list[CellResult]
    """The cells, the base first."""
    order: RankCorrelation | None = None
    """Rank correlation of success at the end with the order that the finding expects; None if it expects none, or if a
    cell is missing."""

    @property
    def failures(self) -> dict[str, str]:
        """Run -> why it failed."""
        return {cell.runs[seed]: error for cell in self.cells for seed, error in cell.errors.items()}

    @property
    def verdicts(self) -> dict[str, str]:
        """Cell -> verdict, in a sentence, on whether the paper's finding shows here."""
        finding = self.grid.finding
        expected = finding.expected if finding else {}
        return {cell.label: self._verdict(cell, expected[cell.label]) for cell in self.cells if cell.label in expected}

    def _verdict(self, cell: CellResult, expected: Expected) -> str:
        if expected == "later":
            return judge_fall(cell.fell, self.cells[0].fell)
        panel = cell.panels.get(self.panel)
        difference = panel.difference if panel else None
        if expected == "alike":
            return judge_alike(difference, self.grid.finding.margin if self.grid.finding else 0.0)
        return judge_end(expected, difference)

    @property
    def warnings(self) -> list[str]:
        """Caveats for reading the numbers."""
        seeds = len(self.grid.seeds)
        caveats = ["a peak is the luckiest of many measurements, so it is too high"]
        if seeds < MIN_SEEDS:
            caveats.append(f"{seeds} seed{'s' * (seeds > 1)}: the intervals say next to nothing about other seeds")
        partial = [cell.label for cell in self.cells if cell.errors and cell.panels]
        if partial:
            caveats.append(f"not all seeds of {', '.join(partial)} finished, and those that did may be the lucky ones")
        return caveats


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of one run.

    Attributes:
        run: Its name.
        evaluations: Its success, if it finished.
        training: Success in training, by iteration.
        error: Why it failed, if it did.
        seconds: Iteration -> seconds of training before it, if the grid's figure needs them.
    """

    run: str
    evaluations: Evaluations | None = None
    training: Series = field(default_factory=dict)
    error: str | None = None
    seconds: Series = field(default_factory=dict)


def summarise(grid: Grid, cells: Sequence[Cell], outcomes: Mapping[tuple[str, int], RunOutcome]) -> AblationResult:
    """Summarise an ablation.

    Args:
        grid: The specification.
        cells: Its cells, the base first.
        outcomes: (label of the cell, seed) -> outcome of the run.
    """
    panel = cells[0].config.environment.type
    of_cell = {cell.label: {seed: outcomes[cell.label, seed] for seed in grid.seeds} for cell in cells}
    panels = {label: _by_panel(runs) for label, runs in of_cell.items()}
    seconds = {label: {seed: run.seconds for seed, run in runs.items()} for label, runs in of_cell.items()}
    ends = {label: by_panel.get(panel, {}) for label, by_panel in panels.items()}
    base = cells[0].label
    results = [
        CellResult(
            label=cell.label,
            values=cell.values,
            is_base=cell.is_base,
            runs={seed: run.run for seed, run in runs.items()},
            errors={seed: run.error for seed, run in runs.items() if run.error is not None},
            fell=_falls(runs),
            at_equal_time=None
            if cell.is_base
            else _at_equal_time(ends[cell.label], ends[base], seconds[cell.label], seconds[base]),
            panels={
                name: _panel_result(measured, {} if cell.is_base else panels[base].get(name, {}))
                for name, measured in panels[cell.label].items()
            },
        )
        for cell, runs in zip(cells, of_cell.values(), strict=True)
    ]
    order = _order([ends[label] for label in grid.finding.order]) if grid.finding and grid.finding.order else None
    return AblationResult(name=grid.name, grid=grid, panel=panel, cells=results, order=order)


Runs = Mapping[int, Mapping[int, Rates]]
"""Seed -> iteration -> success by prompt, on one panel; iterations without a measured prompt are absent."""


def _by_panel(runs: Mapping[int, RunOutcome]) -> dict[str, dict[int, dict[int, Rates]]]:
    """Return panel -> `Runs` of the seeds that finished."""
    panels: dict[str, dict[int, dict[int, Rates]]] = {}
    for seed, run in runs.items():
        for name, iterations in (run.evaluations or {}).items():
            measured = {at: rates for at, rates in iterations.items() if rates}
            if measured:
                panels.setdefault(name, {})[seed] = measured
    return panels


def _panel_result(runs: Runs, base: Runs) -> PanelResult:
    prompts = list(dict.fromkeys(p for iterations in runs.values() for rates in iterations.values() for p in rates))
    common = sorted(set.intersection(*(set(iterations) for iterations in runs.values())))
    rates = {at: [_row(iterations[at], prompts) for iterations in runs.values()] for at in common}
    curve = {at: float(np.nanmean(of_seeds)) for at, of_seeds in rates.items()}
    highest = max(curve.values(), default=0.0)
    best = next((at for at, success in curve.items() if success >= highest - _ROUNDING), None)
    ends = np.array([_row(_end(iterations), prompts) for iterations in runs.values()])
    low, high = _interval(ends)
    return PanelResult(
        first=curve.get(0),
        last=float(np.nanmean(ends)),
        last_low=low,
        last_high=high,
        last_iteration=max(max(iterations) for iterations in runs.values()),
        peak=None if best is None else curve[best],
        peak_iteration=best,
        difference=_difference(_ends(runs), _ends(base)),
        curve=curve,
        seed_curves={
            seed: {at: float(np.mean(list(rates.values()))) for at, rates in iterations.items()}
            for seed, iterations in runs.items()
        },
    )


def _difference(rates: Mapping[int, Rates], base: Mapping[int, Rates]) -> MatchedDifference | None:
    ends = {seed: (ours, base[seed]) for seed, ours in rates.items() if seed in base}
    ends = {seed: (ours, theirs) for seed, (ours, theirs) in ends.items() if ours.keys() & theirs.keys()}
    if not ends:
        return None
    prompts = list(dict.fromkeys(prompt for _, theirs in ends.values() for prompt in theirs))
    ours, theirs = (np.array([_row(pair[which], prompts) for pair in ends.values()]) for which in (0, 1))
    difference = paired_difference(ours, theirs)
    return MatchedDifference(
        mean=difference.mean,
        low=difference.low,
        high=difference.high,
        per_seed=dict(zip(ends, difference.per_seed, strict=True)),
        num_prompts=difference.num_prompts,
    )


def _falls(runs: Mapping[int, RunOutcome]) -> dict[int, int | None]:
    """Return seed -> iteration at which training success fell; None if it did not, in a long enough finished run."""
    falls = {seed: fall(run.training) for seed, run in runs.items()}
    is_whole = {seed: run.error is None and len(run.training) >= MIN_POINTS for seed, run in runs.items()}
    return {seed: iteration for seed, iteration in falls.items() if iteration is not None or is_whole[seed]}


def _at_equal_time(
    runs: Runs, base: Runs, seconds: Mapping[int, Series], base_seconds: Mapping[int, Series]
) -> EqualTime | None:
    """Success of every run after the training time of the base's run with the same seed.

    Returns:
        None if times are unknown, or if no run had been evaluated by then.
    """
    updates: dict[int, float] = {}
    rates: dict[int, Rates] = {}
    relative = []
    for seed in (seed for seed in runs if seed in base and seconds[seed] and base_seconds[seed]):
        budget, spent = base_seconds[seed][max(base[seed])], seconds[seed]
        if reached := _at_time(runs[seed], spent, budget):
            updates[seed], rates[seed] = reached
            relative.append(spent[max(runs[seed])] / budget if budget else 1.0)
    if not rates:
        return None
    return EqualTime(
        relative_seconds=float(np.mean(relative)),
        updates=updates,
        success=float(np.mean([np.mean(list(of_prompts.values())) for of_prompts in rates.values()])),
        difference=_difference(rates, _ends(base)),
    )


def _at_time(iterations: Mapping[int, Rates], spent: Series, budget: float) -> tuple[float, Rates] | None:
    """Updates and success by prompt after `budget` seconds of training; None before the first evaluation, or between
    two that have no prompt in common."""
    before = max((at for at in iterations if spent[at] <= budget), default=None)
    if before is None:
        return None
    after = min((at for at in iterations if at > before), default=None)
    if after is None:
        return before, iterations[before]
    share = (budget - spent[before]) / (spent[after] - spent[before])
    earlier, later = iterations[before], iterations[after]
    rates = {prompt: (1 - share) * rate + share * later[prompt] for prompt, rate in earlier.items() if prompt in later}
    return (before + share * (after - before), rates) if rates else None


def _interval(ends: np.ndarray) -> tuple[float, float]:
    """Interval of mean success at the end, as that of its difference from zero. [seeds, prompts]"""
    difference = paired_difference(ends, np.zeros_like(ends), least=0.0)
    return max(0.0, difference.low), min(1.0, difference.high)


def _order(cells: Sequence[Runs]) -> RankCorrelation | None:
    """Correlate success at the end with the order of the cells, over the seeds that all of them have."""
    seeds = [seed for seed in cells[0] if all(seed in runs for runs in cells)]
    prompts = list(dict.fromkeys(p for runs in cells for seed in seeds for p in _end(runs[seed])))
    if not prompts:
        return None
    return order_of_cells(np.array([[_row(_end(runs[seed]), prompts) for seed in seeds] for runs in cells]))


def _end(iterations: Mapping[int, Rates]) -> Rates:
    return iterations[max(iterations)]


def _ends(runs: Runs) -> dict[int, Rates]:
    return {seed: _end(iterations) for seed, iterations in runs.items()}


def _row(rates: Rates, prompts: Sequence[Prompt]) -> list[float]:
    return [rates.get(prompt, float("nan")) for prompt in prompts]
