"""A sweep's result in words: rows for tables, markdown for Prefect."""

from starpo.flows.markdown import code, dict_table, text
from starpo.ragen.studies.sweep.result import SweepResult


def leaderboard_rows(result: SweepResult) -> list[dict[str, str]]:
    """A row a checkpoint and temperature, the best first."""
    is_several = len(result.environments) > 1
    return [
        {
            "rank": str(standing.rank or ""),
            "run": standing.run,
            "checkpoint": str(standing.iteration),
            "T": f"{standing.temperature:g}",
            "success": _interval(standing.success, standing.low, standing.high) or "not measured",
            "to the first": _difference(standing.difference) if standing.rank else "",
            **({name: _share(standing.by_environment.get(name)) for name in result.environments} if is_several else {}),
        }
        for standing in result.leaderboard
    ]


def score_rows(result: SweepResult) -> list[dict[str, str]]:
    """A row a checkpoint and temperature, a column a panel: success over the seeds with its interval."""
    scores = {(s.run, s.iteration, s.temperature, s.environment): s for s in result.scores}
    rows = []
    for run, iteration, temperature in dict.fromkeys((c.run, c.iteration, c.temperature) for c in result.cells):
        row = {"run": run, "checkpoint": str(iteration), "T": f"{temperature:g}"}
        for name in result.environments:
            score = scores.get((run, iteration, temperature, name))
            row[name] = "" if score is None else _interval(score.success, score.low, score.high)
        rows.append(row)
    return rows


def error_rows(result: SweepResult) -> list[dict[str, str]]:
    """A row a cell that failed."""
    return [{"cell": cell, "error": error} for cell, error in result.failures.items()]


def heading(result: SweepResult) -> str:
    """What was measured, in a line."""
    numbers = [score.num_episodes for score in result.scores] or [0]
    several = f"{min(numbers)} to {max(numbers)}" if min(numbers) != max(numbers) else str(numbers[0])
    seeds = ", ".join(map(str, result.sweep.seeds))
    return f"{len(result.cells)} cells; {several} episodes a score; seed{'s' * (len(result.sweep.seeds) > 1)} {seeds}"


def method(result: SweepResult) -> str:
    """What the columns are, in a sentence."""
    mean = "success: mean over the environments, " if len(result.environments) > 1 else "success: "
    return (
        f"{mean}{result.confidence:.0%} interval (Wilson's where a prompt has one episode, else from resampling "
        "prompts); to the first: paired over prompts, bootstrap."
    )


def markdown(result: SweepResult, place: str) -> str:
    """The result as a page for Prefect.

    Args:
        result: The result.
        place: Where it is stored.
    """
    parts = [f"# Sweep {text(result.name)}", "", text(heading(result))]
    tables = {
        "Leaderboard": leaderboard_rows(result), "Success by panel": score_rows(result),
        "Failed cells": error_rows(result),
    }  # fmt: skip
    for title, rows in tables.items():
        if rows:
            parts += ["", f"## {title}", "", *dict_table(rows)]
    notes = [f"- {text(note)}" for note in (method(result), *result.warnings)]
    return "\n".join([*parts, "", *notes, "", f"Stored in {code(place)}."])


def _interval(mean: float | None, low: float | None, high: float | None) -> str:
    return "" if mean is None or low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _difference(difference: object) -> str:
    if difference is None:
        return "first"
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"  # type: ignore[attr-defined]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
