"""Generalisation: every run on the panels of all runs, before and after training.

SweepResult of a matrix -> entries -> table
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starpo.ragen.studies.leaderboard import SweepResult
from starpo.ragen.studies.result import Table, interval
from starpo.ragen.studies.scores import Score


@dataclass(frozen=True)
class GeneralisationEntry:
    """A run on a panel.

    Attributes:
        first: Score of its first checkpoint; None if not measured.
        last: Score of its last checkpoint, with the gain over the first; None if not measured.
    """

    first: Score | None
    last: Score | None


def entries(result: SweepResult) -> Mapping[tuple[str, str], GeneralisationEntry]:
    """Return (run, panel) -> entry; with several temperatures, that of the lowest. Runs that train on the same
    environment stand together."""
    order = list(result.runs.values())
    table = {}
    for run in sorted(result.runs, key=lambda run: order.index(result.runs[run])):
        of_run = [standing for standing in result.leaderboard if standing.run == run]
        coolest = min((standing.temperature for standing in of_run), default=0.0)
        by_iteration = {standing.iteration: standing.scores for standing in of_run if standing.temperature == coolest}
        ends = [by_iteration[at] for at in sorted(by_iteration)] or [{}]
        for panel in result.environments:
            table[run, panel] = GeneralisationEntry(ends[0].get(panel), ends[-1].get(panel))
    return table


def generalisation_table(result: SweepResult) -> Table:
    """Return one row per run and panel: success of the first and last checkpoint, and their difference."""
    rows = [
        {
            "run": run,
            "trains on": result.runs[run],
            "panel": panel,
            "first": score_text(entry.first),
            "last": score_text(entry.last) or "not measured",
            "last - first": str((entry.last and entry.last.gain) or ""),
        }
        for (run, panel), entry in entries(result).items()
    ]
    title = "generalisation: success on every panel, first checkpoint and last"
    return Table(title, rows, ("run", "trains on", "panel"))


def score_text(score: Score | None) -> str:
    """Format a score with its interval; empty if not measured."""
    return interval(score.success, score.low, score.high) if score else ""
