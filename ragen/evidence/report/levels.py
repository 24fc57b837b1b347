"""Panels of a curriculum: the share of every level, and the success that it follows, over the iterations.

metrics of the stage `curriculum` -> CurvePanel
"""

from collections.abc import Mapping

from starpo.ragen.evidence.report.curves import CurvePanel, Line
from starpo.ragen.learning.metrics.table import Series

_PANELS = (
    ("Shares of levels", "of the groups of the rollout, as the curriculum gave them", "curriculum/share/"),
    ("Success of levels", "over the groups that the curriculum looked at, before the rollout", "curriculum/success/"),
)


def level_panels(series: Mapping[str, Series]) -> list[CurvePanel]:
    """Return a panel of shares and one of success, with a line per level as measured; none without a curriculum."""
    panels = []
    for title, note, prefix in _PANELS:
        of_levels = {name.removeprefix(prefix): values for name, values in series.items() if name.startswith(prefix)}
        lines = [Line(level, prefix + level, list(values.items())) for level, values in of_levels.items()]
        if lines:
            panels.append(CurvePanel(title, note, lines, is_share=True))
    return panels
