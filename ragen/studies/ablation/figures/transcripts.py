"""Responses at the first and the last evaluation, side by side, to show the effect of training (RAGEN, Table 1).

AblationResult -> draw_transcripts -> HTML page
"""

from starpo.ragen.core.templates import template
from starpo.ragen.studies.ablation.figures.figure import Figure, Verdicts
from starpo.ragen.studies.ablation.figures.trends import shrinking_verdicts, trend_table
from starpo.ragen.studies.ablation.result import AblationResult
from starpo.ragen.studies.result import Table

_DISTINCT = "rollout/distinct_response_share"


def draw_transcripts(result: AblationResult) -> str:
    """Render one HTML page without scripts or external requests. The template escapes model output."""
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
    """Return the share of distinct responses, early and late in training."""
    title = "share of different responses, in training"
    return [trend_table(result, _DISTINCT, title, 3, "by seed", lambda trend: f"{trend.first:.3f}->{trend.last:.3f}")]


def transcript_verdicts(result: AblationResult) -> Verdicts:
    """Judge for each cell whether responses become more alike."""
    return shrinking_verdicts(result, _DISTINCT, "responses growing alike")


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
