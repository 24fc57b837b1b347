"""Tables of an ablation: success by cell and panel, and beside it what a paper found."""

from starpo.ragen.studies.ablation import AblationResult, CellResult, PanelResult
from starpo.ragen.studies.figures.league import league_table
from starpo.ragen.studies.finding import fallen, judge_order, sentence
from starpo.ragen.studies.result import Table, interval, share

_DIFFERENCE = "difference [95%], and by seed"
_ORDER = "the order of the cells"
_COLUMNS = ("first", "last", "peak", _DIFFERENCE)


def ablation_tables(result: AblationResult) -> list[Table]:
    """Return tables with one row per cell: the training environment's panel, the other panels, then the finding."""
    panels = dict.fromkeys([result.panel, *(name for cell in result.cells for name in cell.panels)])
    return [*(_table(result, panel) for panel in panels), *_finding(result)]


def ablation_verdicts(result: AblationResult) -> dict[str, str]:
    """Return claim -> verdict on whether it shows here: for cells, and for their order."""
    if result.grid.finding is None:
        return {}
    order = {_ORDER: judge_order(result.order)} if result.grid.finding.order else {}
    return {**result.verdicts, **order}


def ablation_conclusion(result: AblationResult) -> str:
    """Summarise in a sentence whether the finding shows at this scale; empty if the grid specifies none."""
    return sentence(ablation_verdicts(result))


def ablation_method(result: AblationResult) -> str:
    """Explain the columns in a sentence."""
    return (
        f"Difference: success at the last evaluation minus the base's, with a {result.confidence:.0%} paired bootstrap "
        f"interval over matched seeds and prompts (percentile, {result.num_resamples:,} resamples, seed "
        f"{result.bootstrap_seed})."
    )


def _finding(result: AblationResult) -> list[Table]:
    finding, league = result.grid.finding, [league_table(result)] if result.grid.figure == "league" else []
    if finding is None:
        return league
    rows = []
    for cell in result.cells:
        panel, number = cell.panels.get(result.panel), finding.numbers.get(cell.label)
        row = {"cell": cell.label, "paper": share(number), "here": _end(panel)}
        rows.append({**row, "training": fallen(cell.fell), "shows?": result.verdicts.get(cell.label, "")})
    tables = [Table(f"{finding.source}: {finding.claim}", rows, ("cell", "training", "shows?")), *league]
    others = {what: verdict for what, verdict in ablation_verdicts(result).items() if what not in result.verdicts}
    if others:
        shown = [{"what": what, "shows?": verdict} for what, verdict in others.items()]
        tables.append(Table(f"{finding.source}: further findings", shown, ("what", "shows?")))
    return tables


def _end(panel: PanelResult | None) -> str:
    """Format success at the end with its interval."""
    return interval(panel.last, panel.last_low, panel.last_high) if panel else ""


def _table(result: AblationResult, panel: str) -> Table:
    ends = {cell.panels[panel].last_iteration for cell in result.cells if panel in cell.panels}
    is_same_end = len(ends) == 1
    title = f"success on {panel}" + (f"; last: at iteration {ends.pop()}" if is_same_end else "")
    rows = [_row(cell, cell.panels.get(panel), is_same_end) for cell in result.cells]
    return Table(title, rows, ("cell", _DIFFERENCE))


def _row(cell: CellResult, panel: PanelResult | None, is_same_end: bool) -> dict[str, str]:
    row = {"cell": cell.label, "seeds": f"{len(cell.runs) - len(cell.errors)}/{len(cell.runs)}"}
    if panel is None:
        return {**row, **dict.fromkeys(_COLUMNS, ""), _DIFFERENCE: "not measured"}
    difference = "base" if cell.is_base else "no matched seed or prompt"
    if panel.difference:
        by_seed = " ".join(f"{value:+.3f}" for value in panel.difference.per_seed.values())
        difference = f"{panel.difference}\n{by_seed}"
    numbers = (
        share(panel.first),
        share(panel.last) + ("" if is_same_end else f" at {panel.last_iteration}"),
        "" if panel.peak is None else f"{share(panel.peak)} at {panel.peak_iteration}",
        difference,
    )
    return {**row, **dict(zip(_COLUMNS, numbers, strict=True))}
