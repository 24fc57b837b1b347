"""Generalisation: every run on the panels of all runs, before and after training.

SweepResult of a matrix -> entries -> table, conclusion, heat map
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starpo.ragen.studies.leaderboard import Score, SweepResult
from starpo.ragen.studies.result import Table, interval


@dataclass(frozen=True)
class Entry:
    """A run on a panel.

    Attributes:
        first: Score of its first checkpoint; None if not measured.
        last: Score of its last checkpoint, with the gain over the first; None if not measured.
        is_own: Whether the run trains on this environment.
    """

    first: Score | None
    last: Score | None
    is_own: bool

    @property
    def words(self) -> str:
        """First and last success in percent, and the interval of the last."""
        if self.last is None:
            return "not measured"
        before = f"{100 * self.first.success:.0f} \u2192 " if self.first and self.first is not self.last else ""
        return f"{before}{100 * self.last.success:.0f}%\n{100 * self.last.low:.0f} to {100 * self.last.high:.0f}"


def entries(result: SweepResult) -> Mapping[tuple[str, str], Entry]:
    """Return (run, panel) -> entry; with several temperatures, that of the lowest. Runs that train on the same
    environment stand together."""
    order = list(result.runs.values())
    found = {}
    for run, trained_on in sorted(result.runs.items(), key=lambda item: order.index(item[1])):
        of_run = [standing for standing in result.leaderboard if standing.run == run]
        coolest = min((standing.temperature for standing in of_run), default=0.0)
        by_iteration = {standing.iteration: standing.scores for standing in of_run if standing.temperature == coolest}
        ends = [by_iteration[at] for at in sorted(by_iteration)] or [{}]
        for panel in result.environments:
            found[run, panel] = Entry(ends[0].get(panel), ends[-1].get(panel), panel == trained_on)
    return found


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


def generalisation_conclusion(result: SweepResult) -> str:
    """Summarise in a sentence on how many panels that a run does not train on its success rises and falls."""
    lasts = [entry.last for entry in entries(result).values() if entry.last and not entry.is_own]
    gains = [last.gain for last in lasts if last.gain]
    if not gains:
        return ""
    rises, falls = sum(gain.low > 0 for gain in gains), sum(gain.high < 0 for gain in gains)
    return (
        f"From the first checkpoint to the last, success rises on {rises} and falls on {falls} of {len(gains)} panels "
        f"that a run does not train on (the whole {result.confidence:.0%} interval of the paired difference)."
    )


def score_text(score: Score | None) -> str:
    """Format a score with its interval; empty if not measured."""
    return interval(score.success, score.low, score.high) if score else ""
