"""Validation and expansion of a sweep: its named cells, their keys, and which of them are stored.

sweep, store -> plan_sweep -> SweepPlan -> starpo.flows.eval_sweep, or a dry run
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store
from starpo.ragen.studies.checkpoints import SweepCell, expand
from starpo.ragen.studies.leaderboard import SweepResult, summarise
from starpo.ragen.studies.outcomes import read_outcome
from starpo.ragen.studies.sweep import Sweep
from starpo.tasks.evaluate import evaluate


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its work.

    Attributes:
        cell: The cell.
        work: The stage that evaluates it.
        is_stored: Whether its evaluation is already stored, by any run or sweep.
    """

    cell: SweepCell
    work: Work
    is_stored: bool

    @property
    def label(self) -> str:
        """Label of the cell, for people."""
        return self.cell.label


@dataclass(frozen=True)
class SweepPlan:
    """A sweep, planned.

    Attributes:
        sweep: The sweep.
        cells: Its cells, as of now.
        waiting: Run -> the requested checkpoints that it does not have yet.
    """

    sweep: Sweep
    cells: list[PlannedCell]
    waiting: dict[str, str]

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.sweep.name

    @property
    def labels(self) -> list[str]:
        """Labels of the cells."""
        return [planned.label for planned in self.cells]

    @property
    def missing(self) -> list[PlannedCell]:
        """Cells that are not evaluated yet."""
        return [planned for planned in self.cells if not planned.is_stored]

    @cached_property
    def runs(self) -> list[str]:
        """Names of the runs whose checkpoints are evaluated."""
        return list(dict.fromkeys(planned.cell.run for planned in self.cells))

    def dropped(self, store: Store) -> list[str]:
        """Return the dropped checkpoints that missing cells need; they are derived first."""
        keys = dict.fromkeys(planned.cell.checkpoint for planned in self.missing)
        return [key for key in keys if store.dropped("checkpoint", key) is not None]

    def result(self, store: Store, errors: Mapping[str, str]) -> SweepResult:
        """Read the cells' measurements and summarise them.

        Args:
            store: Where the cells are stored.
            errors: Label of a cell -> its error, for cells that failed.
        """
        outcomes, unread = {}, dict(errors)
        for planned in self.cells:
            label = planned.label
            if label not in errors:
                try:
                    outcomes[label] = read_outcome(store, planned.work.key, planned.cell.panel)
                except StoreError as error:
                    unread[label] = f"its measurements cannot be read: {error}"
        cells, keys = [planned.cell for planned in self.cells], [planned.work.key for planned in self.cells]
        return summarise(self.sweep, cells, keys, outcomes, unread, self.waiting)


def plan_sweep(store: Store, sweep: Sweep) -> SweepPlan:
    """Check a sweep, and look up which of its cells are stored. Nothing is written.

    Raises:
        ConfigError: If the sweep is invalid, or names nobody.
        StoreError: If it names a run that does not exist.
    """
    if not (sweep.runs or sweep.subjects):
        raise ConfigError(f"evaluation {sweep.name} names no run; `starpo runs` lists them")
    expansion = expand(sweep, store)
    return SweepPlan(sweep, [_planned(store, cell) for cell in expansion.cells], expansion.waiting)


def _planned(store: Store, cell: SweepCell) -> PlannedCell:
    settings = cell.settings, cell.agent, cell.rollout, cell.evaluation
    work = evaluate(
        cell.iteration, cell.panel, *settings, cell.checkpoint, lineage=store.url, seed=cell.seed
    )  # fmt: skip
    return PlannedCell(cell, work, work.is_stored(store))
