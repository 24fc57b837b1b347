"""Validation and expansion of a grid: its cells, and a named run for every cell and seed.

grid (+ preset or run) -> plan_ablation -> AblationPlan -> starpo.flows.ablation, or a dry run
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starpo.flows.presets import PRESETS, method, preset
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store
from starpo.ragen.studies.ablation import AblationResult, RunOutcome, summarise
from starpo.ragen.studies.cells import Cell, expand
from starpo.ragen.studies.grid import Grid, check_grid
from starpo.ragen.studies.outcomes import Evaluations, read_evaluations, read_seconds, read_training_success
from starpo.tasks.loop.plan import RunPlan, plan_run
from starpo.tasks.loop.rollback import final_run
from starpo.tasks.loop.run_code import default_run_name


@dataclass(frozen=True)
class CellRun:
    """Run of one cell with one seed.

    Attributes:
        cell: The cell.
        seed: The seed.
        label: Label of its settings: ablation and cell.
        config: The run's settings.
        name: The run's name: label, seed, and eight digits of settings and code; or the name of an earlier finished run
            with the same settings and code, whatever started it.
    """

    cell: Cell
    seed: int
    label: str
    config: StarPOConfig
    name: str


@dataclass(frozen=True)
class AblationPlan:
    """An ablation, ready to be planned or run.

    Attributes:
        grid: The grid.
        base: The settings that its cells start from.
        cells: The cells; the base comes first.
        runs: The runs, ordered by seed, so that cells can be compared as soon as one seed is complete.
    """

    grid: Grid
    base: StarPOConfig
    cells: list[Cell]
    runs: list[CellRun]

    @property
    def name(self) -> str:
        """Name of the ablation."""
        return self.grid.name

    @property
    def labels(self) -> list[str]:
        """Names of the runs."""
        return [run.name for run in self.runs]

    def plans(self, store: Store) -> dict[str, RunPlan]:
        """Plan every run, by its name; each stage is looked up in the store only once."""
        known: dict[Work, bool] = {}
        return {run.name: plan_run(store, run.name, run.config, known) for run in self.runs}

    def result(self, store: Store, errors: Mapping[str, str]) -> AblationResult:
        """Read the runs' measurements and summarise them.

        Args:
            store: Where the runs are stored.
            errors: Run -> its error, for runs that failed.
        """
        names = store.runs.names()
        outcomes = {
            (run.cell.label, run.seed): _outcome(
                store, final_run(run.name, names), errors.get(run.name), needs_times=self.grid.figure == "league"
            )
            for run in self.runs
        }
        return summarise(self.grid, self.cells, outcomes)


def _outcome(store: Store, name: str, error: str | None, *, needs_times: bool) -> RunOutcome:
    """Read the outcome of a run, under the name that it ended as; a failed run's training metrics are kept."""
    evaluations: Evaluations | None = None
    training: Series = {}
    seconds: Series = {}
    try:
        training = read_training_success(store, name)
        evaluations = read_evaluations(store, name) if error is None else None
        seconds = read_seconds(store, name) if needs_times else {}
    except StoreError as damage:
        error = error or f"its measurements cannot be read: {damage}"
    return RunOutcome(name, evaluations, training, error, seconds)


def plan_ablation(
    grid: Grid,
    store: Store,
    *,
    config: StarPOConfig | None = None,
    source: str | None = None,
    folder: Path | None = None,
    allow_few_seeds: bool = False,
) -> AblationPlan:
    """Check a grid and everything in it, before any work.

    Args:
        grid: The grid.
        store: Where its base run is stored, if it names one.
        config: Settings of its base. None for those of its preset or run.
        source: Origin of the grid, for messages. None for its name.
        folder: Folder that a TOML file named as its preset may be relative to.
        allow_few_seeds: Accept fewer than three seeds.

    Raises:
        ConfigError: If the grid is invalid; the message says why, and in which cell.
    """
    source = source or f"grid {grid.name}"
    check_grid(grid, source, allow_few_seeds=allow_few_seeds)
    base = config or _base_settings(grid, store, source, folder)
    cells = expand(grid, base, source, {name: method(name) for name in grid.methods})
    return AblationPlan(grid, base, cells, _runs(grid, cells, store))


def _runs(grid: Grid, cells: list[Cell], store: Store) -> list[CellRun]:
    stored = store.runs.names()
    runs = []
    for seed in grid.seeds:
        for cell in cells:
            label, config = f"{grid.name}.{cell.slug}", cell.configuration(seed)
            name = default_run_name(label, config)
            twins = [] if name in stored else [other for other in stored if other.endswith(name.removeprefix(label))]
            name = next((other for other in twins if _is_twin(store, other, config)), name)
            runs.append(CellRun(cell, seed, label, config, name))
    return runs


def _is_twin(store: Store, run: str, config: StarPOConfig) -> bool:
    """Whether a run of this name was finished with exactly these settings."""
    try:
        state, record = store.runs.state(run), store.runs.get(run)
    except StoreError:  # a damaged record
        return False
    is_finished = state is not None and state.status == "completed"
    return is_finished and record.flow == "starpo" and record.config == config.model_dump(mode="json")


def is_finished(store: Store, plan: RunPlan) -> bool:
    """Whether a planned run is complete, perhaps as a fork, with exactly the stages that this release would compute."""
    state = store.runs.state(plan.ends_as)
    is_whole = not plan.new and not plan.assumed and plan.stops is None
    return state is not None and state.status == "completed" and is_whole


def base_file(grid: Grid, folder: Path | None) -> Path | None:
    """Return the TOML file whose settings cells start from, relative to `folder` or the working directory, if any."""
    places = [] if grid.preset is None else [(folder or Path()) / grid.preset, Path(grid.preset)]
    return next((file for file in places if file.is_file()), None)


def _base_settings(grid: Grid, store: Store, source: str, folder: Path | None) -> StarPOConfig:
    """Load the settings of the preset, file or stored run that cells start from."""
    if grid.preset is not None:
        path = base_file(grid, folder)
        if path is None and grid.preset not in PRESETS.names():
            raise ConfigError(
                f"{source}: preset = '{grid.preset}': neither a preset nor a TOML file"
                f"{near(grid.preset, PRESETS.names())}; presets: {', '.join(PRESETS.names())}"
            )
        return preset(grid.preset if path is None else str(path))
    assert grid.run is not None
    try:
        run = store.runs.get(grid.run)
        return recorded_config(run.name, run.config, "Take a run of this release, or a preset")
    except (StoreError, ConfigError) as error:
        raise ConfigError(f"{source}: run = '{grid.run}': {error}") from error
