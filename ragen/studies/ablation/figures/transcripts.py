"""Responses at the first and the last evaluation, side by side: what training made of them (RAGEN, Table 1).

AblationResult -> draw_transcripts -> HTML page
"""

from starpo.ragen.core.templates import template
from starpo.ragen.studies.ablation.figures.figure import Figure, Verdicts
from starpo.ragen.studies.ablation.figures.trends import judge_shrinking, mean_trend, trends
from starpo.ragen.studies.ablation.result import AblationResult
from starpo.ragen.studies.result import Table

_DISTINCT = "rollout/distinct_response_share"


def draw_transcripts(result: AblationResult) -> str:
    """One page without scripts or connections. What models wrote is escaped by the template."""
    finding = result.grid.finding
    return template("starpo.ragen.studies.ablation.figures", "transcripts.html.j2").render(
        title=result.name,
        source=finding.source if finding else "",
        claim=finding.claim if finding else "",
        panel=result.panel,
        seed=result.grid.seeds[0],
        cells=[(cell, _words(result, number)) for number, cell in enumerate(result.cells)],
    )


def transcript_tables(result: AblationResult) -> list[Table]:
    """A row a cell: the share of different responses, early and late in training."""
    rows = []
    for cell in result.cells:
        found = trends(cell, _DISTINCT)
        row = {"cell": cell.label, "first tenth": "", "last tenth": "", "by seed": "not measured"}
        if found:
            mean = mean_trend(list(found.values()))
            row |= {"first tenth": f"{mean.first:.3f}", "last tenth": f"{mean.last:.3f}"}
            row["by seed"] = " ".join(f"{trend.first:.3f}->{trend.last:.3f}" for trend in found.values())
        rows.append(row)
    return [Table("share of different responses, in training", rows, ("cell", "by seed"))]


def transcript_verdicts(result: AblationResult) -> Verdicts:
    """Do responses become alike, cell by cell?"""
    return {
        f"responses growing alike in {cell.label}": judge_shrinking(list(trends(cell, _DISTINCT).values()))
        for cell in result.cells
    }


def _words(result: AblationResult, number: int) -> str:
    (table,) = transcript_tables(result)
    row = table.rows[number]
    if not row["first tenth"]:
        return "not measured"
    return f"different responses in training: {row['first tenth']} in its first tenth, {row['last tenth']} in its last"


TRANSCRIPTS = Figure(
    "transcripts.html", draw_transcripts, ("diagnose",), (_DISTINCT,), has_transcripts=True, tables=transcript_tables,
    verdicts=transcript_verdicts,
)  # fmt: skip
