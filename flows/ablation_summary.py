"""An ablation's result in words: rows for tables, markdown for Prefect."""

from starpo.flows.markdown import code, dict_table, text
from starpo.ragen.studies.ablation.summary import AblationResult, CellResult, Difference, PanelResult

_COLUMNS = ("first", "last", "peak", "cross-fitted", "difference", "by seed")


def result_rows(result: AblationResult, panel: str | None = None) -> list[dict[str, str]]:
    """A row a cell.

    Args:
        result: The result.
        panel: Which panel. None: that of the training environment.
    """
    name = panel or result.panel
    is_same_end = len(_ends(result, name)) == 1
    return [_result_row(cell, cell.panels.get(name), is_same_end) for cell in result.cells]


def heading(result: AblationResult, panel: str) -> str:
    """What a panel's table shows."""
    ends = _ends(result, panel)
    return f"success on {panel}" + (f"; last: at iteration {ends.pop()}" if len(ends) == 1 else "")


def _ends(result: AblationResult, panel: str) -> set[int]:
    """Updates before the last evaluation, of all cells."""
    return {cell.panels[panel].last_iteration for cell in result.cells if panel in cell.panels}


def error_rows(result: AblationResult) -> list[dict[str, str]]:
    """A row a run that failed."""
    return [{"run": run, "error": error} for run, error in result.failures.items()]


def other_panels(result: AblationResult) -> list[str]:
    """Names of the panels beside the training environment's."""
    names = dict.fromkeys(name for cell in result.cells for name in cell.panels)
    return [name for name in names if name != result.panel]


def method(result: AblationResult) -> str:
    """What the columns are, in a sentence."""
    return (
        f"Difference: success at the last evaluation minus the base's, with a {result.confidence:.0%} paired bootstrap "
        f"interval over matched seeds and prompts (percentile, {result.num_resamples:,} resamples, seed "
        f"{result.bootstrap_seed})."
    )


def markdown(result: AblationResult, place: str) -> str:
    """The result as a page for Prefect.

    Args:
        result: The result.
        place: Where it is stored.
    """
    parts = [f"# Ablation {text(result.name)}"]
    for panel in (result.panel, *other_panels(result)):
        parts += ["", f"## {text(heading(result, panel))}", "", *dict_table(result_rows(result, panel))]
    if result.failures:
        parts += ["", "## Failed runs", "", *dict_table(error_rows(result))]
    notes = [f"- {text(note)}" for note in (method(result), *result.warnings)]
    return "\n".join([*parts, "", *notes, "", f"Stored in {code(place)}."])


def _result_row(cell: CellResult, panel: PanelResult | None, is_same_end: bool) -> dict[str, str]:
    row = {"cell": cell.label, "seeds": f"{len(cell.runs) - len(cell.errors)}/{len(cell.runs)}"}
    if panel is None:
        return {**row, **dict.fromkeys(_COLUMNS, ""), "difference": "not measured"}
    by_seed = panel.difference.per_seed.values() if panel.difference else ()
    numbers = (
        _share(panel.first),
        _share(panel.last) + ("" if is_same_end else f" at {panel.last_iteration}"),
        f"{_share(panel.peak)} at {panel.peak_iteration}",
        _share(panel.peak_cross_fitted),
        "base" if cell.is_base else _interval(panel.difference),
        " ".join(f"{difference:+.3f}" for difference in by_seed),
    )
    return {**row, **dict(zip(_COLUMNS, numbers, strict=True))}


def _interval(difference: Difference | None) -> str:
    if difference is None:
        return "no matched seed"
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
