"""Tables of a sweep: the leaderboard, and success by panel."""

from starpo.ragen.studies.result import Table, share
from starpo.ragen.studies.sweep.matrix import matrix_conclusion, matrix_rows
from starpo.ragen.studies.sweep.result import Standing, SweepResult

_TEXTS = ("run",)


def sweep_tables(result: SweepResult) -> list[Table]:
    """Return the leaderboard, one row per checkpoint and temperature, best first. With several panels, add a table with
    one column per panel; for a matrix sweep, instead a table with one row per run and panel."""
    leaderboard = Table(f"leaderboard; {_heading(result)}", _leaderboard(result), _TEXTS)
    if result.sweep.is_matrix:
        title = "generalisation: success on every panel, first checkpoint and last"
        return [leaderboard, Table(title, matrix_rows(result), ("run", "trains on", "panel"))]
    if len(result.environments) < 2:
        return [leaderboard]
    return [leaderboard, Table("success by panel, over seeds", _by_panel(result), _TEXTS)]


def sweep_method(result: SweepResult) -> str:
    """Explain the columns in a sentence."""
    mean = "success: mean over the environments, " if len(result.environments) > 1 else "success: "
    return (
        f"{mean}{result.confidence:.0%} interval (Wilson's where a prompt has one episode, else from resampling "
        "prompts); to the first: paired over prompts, bootstrap."
    )


def sweep_conclusion(result: SweepResult) -> str:
    """Summarise, for a matrix sweep, whether training on one environment helps on others; otherwise empty."""
    return matrix_conclusion(result) if result.sweep.is_matrix else ""


def _heading(result: SweepResult) -> str:
    numbers = [score.num_episodes for score in result.scores] or [0]
    several = f"{min(numbers)} to {max(numbers)}" if min(numbers) != max(numbers) else str(numbers[0])
    seeds = ", ".join(map(str, result.sweep.seeds))
    return f"{len(result.cells)} cells; {several} episodes per score; seed{'s' * (len(result.sweep.seeds) > 1)} {seeds}"


def _leaderboard(result: SweepResult) -> list[dict[str, str]]:
    is_several = len(result.environments) > 1
    return [
        {
            "rank": str(standing.rank or ""),
            "run": standing.run,
            "checkpoint": str(standing.iteration),
            "T": f"{standing.temperature:g}",
            "success": _interval(standing.success, standing.low, standing.high) or "not measured",
            "to the first": _to_the_first(standing, result.leaderboard[0]),
            **({name: share(standing.by_environment.get(name)) for name in result.environments} if is_several else {}),
        }
        for standing in result.leaderboard
    ]


def _to_the_first(standing: Standing, first: Standing) -> str:
    if not standing.rank or standing is first:
        return "first" if standing.rank else ""
    return str(standing.difference or "no prompt in common")


def _by_panel(result: SweepResult) -> list[dict[str, str]]:
    scores = {(s.run, s.iteration, s.temperature, s.environment): s for s in result.scores}
    rows = []
    for run, iteration, temperature in dict.fromkeys((c.run, c.iteration, c.temperature) for c in result.cells):
        row = {"run": run, "checkpoint": str(iteration), "T": f"{temperature:g}"}
        for name in result.environments:
            score = scores.get((run, iteration, temperature, name))
            row[name] = "" if score is None else _interval(score.success, score.low, score.high)
        rows.append(row)
    return rows


def _interval(mean: float | None, low: float | None, high: float | None) -> str:
    return "" if mean is None or low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
