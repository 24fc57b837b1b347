"""Tables of a sweep: leaderboard, pairs, returns and episodes by panel, and all numbers as rows of CSV files."""

from typing import Any

from starpo.ragen.core.counts import counted
from starpo.ragen.studies.generalisation import generalisation_table, score_text
from starpo.ragen.studies.leaderboard import Standing, SweepResult
from starpo.ragen.studies.result import Table, interval
from starpo.ragen.studies.scores import Comparison, Score

_NAMES = ("subject", "panel")
_MAX_PAIRED = 6
"""Ranked lines of which all pairs are shown; of more, they are in the files alone."""


def sweep_tables(result: SweepResult) -> list[Table]:
    """Return the leaderboard, one row per checkpoint and temperature, best first; the pairs without the first, of three
    to six lines; the panels, one row per checkpoint, temperature and panel; for a matrix sweep, also a table with one
    row per run and panel."""
    leaderboard = Table(f"leaderboard; {_heading(result)}", _leaderboard(result), ("subject",))
    pairs = Table("the other pairs: line minus other", _pairs(result), ("line", "other"))
    panels = Table("by panel", _panels(result), _NAMES)
    matrix = [generalisation_table(result)] if result.sweep.is_matrix else []
    return [leaderboard, *(table for table in (pairs, panels) if table.rows), *matrix]


def sweep_method(result: SweepResult) -> str:
    """Explain the columns in a few sentences."""
    mean = "success: mean over the environments, " if len(result.environments) > 1 else "success: "
    needed = [
        f" To tell {of.difference.mean:+.3f} apart would take about {rounded(of.difference.num_needed)} states; "
        f"{result.label(of.line)} played {of.difference.num_pairs:,}."
        for of in result.leaderboard
        if of.difference and of.difference.num_needed and of.difference.num_needed > of.difference.num_pairs
    ]
    return (
        f"{mean}{result.confidence:.0%} interval over initial states (Wilson's; return: Student's). "
        f"{explain_difference('all pairs')}"
        + "".join(needed[:1])
        + (
            f" All {len(result.pairs):,} pairs: result.json, or -o FILE.csv."
            if _num_ranked(result) > _MAX_PAIRED
            else ""
        )
    )


def explain_difference(hypotheses: str) -> str:
    """Explain the columns of a paired difference in a sentence; for which hypotheses its p-value is corrected."""
    return (
        f"To the first: paired by state; p: sign-flip test, corrected after Holm for {hypotheses}; up, down: states on "
        "which it does better or worse; needed: states that would tell such a difference apart (power 80%, level 5%)."
    )


def sweep_numbers(result: SweepResult) -> list[dict[str, Any]]:
    """Return a row of numbers for each checkpoint, temperature and panel that was measured."""
    rows = []
    for standing in result.leaderboard:
        for panel, score in standing.scores.items():
            values = score.model_dump(exclude={"difference", "return_difference", "gain", "seeds"})
            rows.append(
                {
                    **standing.model_dump(include={"rank", "run", "iteration", "temperature"}),
                    "panel": panel,
                    "seeds": " ".join(map(str, score.seeds)),
                    **values,
                    **_changes(score.difference, score.return_difference),
                }
            )
    return rows


def pair_numbers(result: SweepResult) -> list[dict[str, Any]]:
    """Return a row of numbers for each pair and panel, and one for their mean over several panels, of panel None."""
    rows = []
    for pair in result.pairs:
        lines = pair.model_dump(exclude={"difference", "panels"})
        if len(pair.panels) > 1:
            rows.append(lines | {"panel": None} | _changes(pair.difference, None))
        for panel, of in pair.panels.items():
            rows.append(lines | {"panel": panel} | _changes(of.difference, of.return_difference))
    return rows


def pair_cells(difference: Comparison | None) -> dict[str, str]:
    """Format on how many states a difference is measured: pairs, up and down, needed; empty for None."""
    if difference is None:
        return dict.fromkeys(("pairs", "up", "down", "needed"), "")
    if not difference.num_pairs:
        return {"pairs": "unpaired", "up": "", "down": "", "needed": ""}
    return {
        "pairs": str(difference.num_pairs),
        "up": str(difference.num_up),
        "down": str(difference.num_down),
        "needed": rounded(difference.num_needed),
    }


def p_text(p_value: float | None) -> str:
    """Format a p-value; empty for None."""
    if p_value is None:
        return ""
    return f"{p_value:.2g}" if p_value >= 0.001 else "< 0.001"


def rounded(number: int | None) -> str:
    """Format an estimated number of states with two digits; empty for None."""
    return "" if number is None else f"{int(float(f'{number:.2g}')):,}"


def _changes(success: Comparison | None, returns: Comparison | None) -> dict[str, Any]:
    return difference_numbers("difference", success) | difference_numbers("return_difference", returns)


def difference_numbers(name: str, comparison: Comparison | None) -> dict[str, Any]:
    """Return column -> number of a difference, its mean under the name alone; None where there is none."""
    values = comparison.model_dump() if comparison else dict.fromkeys(Comparison.model_fields)
    return {name if field == "mean" else f"{name}_{field}": value for field, value in values.items()}


def _heading(result: SweepResult) -> str:
    numbers = [score.num_episodes for standing in result.leaderboard for score in standing.scores.values()] or [0]
    several = f"{min(numbers)} to {max(numbers)}" if min(numbers) != max(numbers) else str(numbers[0])
    seeds = ", ".join(map(str, result.sweep.seeds))
    cells, plural = counted(len(result.cells), "cell"), "s" * (len(result.sweep.seeds) > 1)
    return f"{cells}; {several} episodes per score; seed{plural} {seeds}"


def _policy(result: SweepResult, standing: Standing) -> dict[str, str]:
    """Name who was evaluated; a checkpoint is numbered only where it is a run's."""
    checkpoint = "" if standing.run in result.sweep.subjects else str(standing.iteration)
    return {"subject": standing.run, "checkpoint": checkpoint, "T": f"{standing.temperature:g}"}


def _leaderboard(result: SweepResult) -> list[dict[str, str]]:
    return [
        {
            "rank": str(standing.rank or ""),
            **_policy(result, standing),
            "success": interval(standing.success, standing.low, standing.high) or "not measured",
            "to the first": _to_the_first(standing, result.leaderboard[0]),
            "p": p_text(standing.difference.adjusted_p_value if standing.difference else None),
            **pair_cells(standing.difference),
        }
        for standing in result.leaderboard
    ]


def _num_ranked(result: SweepResult) -> int:
    return sum(standing.rank is not None for standing in result.leaderboard)


def _pairs(result: SweepResult) -> list[dict[str, str]]:
    """Format the pairs that the leaderboard lacks, those without its first line; none of more than six lines."""
    if _num_ranked(result) > _MAX_PAIRED:
        return []
    first = result.leaderboard[0].line if result.leaderboard else None
    return [
        {
            "line": result.label(pair.line),
            "other": result.label(pair.other),
            "difference": str(pair.difference or "no prompt in common"),
            "p": p_text(pair.difference.adjusted_p_value if pair.difference else None),
            **pair_cells(pair.difference),
        }
        for pair in result.pairs
        if pair.other != first
    ]


def _panels(result: SweepResult) -> list[dict[str, str]]:
    """Format every score: success on each panel if there are several, returns and episodes; without empty columns."""
    has_several = len(result.environments) > 1
    rows = [
        {
            **_policy(result, standing),
            "panel": panel,
            **({"success": score_text(score)} if has_several else {}),
            **_episodes(score),
        }
        for standing in result.leaderboard
        for panel, score in standing.scores.items()
    ]
    columns = [column for column in (rows[0] if rows else {}) if any(row[column] for row in rows)]
    return [{column: row[column] for column in columns} for row in rows]


def _episodes(score: Score) -> dict[str, str]:
    change = score.return_difference
    return {
        "return": interval(score.mean_return, score.return_low, score.return_high),
        "return to the first": str(change or ""),
        "p": p_text(change.adjusted_p_value if change else None),
        "malformed": _percent(score.malformed),
        "truncated": _percent(score.truncated),
        "tokens": "" if score.tokens_per_episode is None else f"{score.tokens_per_episode:.0f}",
        "errors": str(score.num_errors or ""),
        "seconds": "" if score.seconds is None else f"{score.seconds:.0f}",
        "cost": f"{score.cost:.4g}" if score.cost else "",  # 0: a server whose prices nobody gave
    }


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _to_the_first(standing: Standing, first: Standing) -> str:
    if not standing.rank or standing is first:
        return "first" if standing.rank else ""
    return str(standing.difference or "no prompt in common")
