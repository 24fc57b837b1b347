"""True advantages of turns against those that estimators give, a small panel for each.

CreditComparison -> draw_credit -> SVG, PDF or PNG
"""

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from starpo.ragen.core.pictures import COLOURS, label, new_figure, rendered, style
from starpo.ragen.learning.metrics.credit_comparison import KINDS, Agreement, CreditComparison, CreditedTurns
from starpo.ragen.learning.metrics.credit_statistics import Statistic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4
_COLOURS = dict(zip(KINDS, (COLOURS[5], COLOURS[8], COLOURS[2], COLOURS[4], COLOURS[0]), strict=True))
_BACKGROUND = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1}
_LETTERS = 40
"""Characters of a panel's title in a line."""


def draw_credit(comparison: CreditComparison, title: str, form: str = "svg") -> bytes:
    """Draw a panel for each estimator, the best first; in each a dot for every turn, in the colour of its kind.

    The line is the best scale of the estimate (`error_share`).

    Args:
        comparison: The comparison.
        title: Title above the panels.
        form: 'svg', 'pdf' or 'png'.
    """
    shown = [one for one in comparison.agreements if one.estimator in comparison.estimates]
    num_rows = -(-len(shown) // _COLUMNS)
    note = (
        f"up: true advantage of a turn, by continuations; across: its estimate; {comparison.num_turns} turns of "
        f"{comparison.num_trajectories} trajectories; rho: rank correlation over all turns [95% interval over groups]; "
        "the line is the best scale"
    )
    with style():
        figure = new_figure(10, 1.1 + 2.25 * num_rows, title, note)
        panels = list(figure.subplots(num_rows, _COLUMNS, squeeze=False, sharey=True).flat)
        for axes, one in zip(panels, shown, strict=False):
            _draw_panel(axes, one, comparison.truth, comparison.estimates[one.estimator])
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        kinds = [kind for kind in KINDS if (comparison.truth.kind == kind).any()]
        dots = [figure.axes[0].plot([], [], "o", markersize=4, color=_COLOURS[kind])[0] for kind in kinds]
        figure.legend(dots, kinds, loc="outside lower left", ncols=len(kinds))
        return rendered(figure, form)


def _draw_panel(axes: "Axes", one: Agreement, truth: CreditedTurns, x_n: np.ndarray) -> None:
    axes.axhline(0, color="#d0d5dd", linewidth=0.8)
    axes.axvline(0, color="#d0d5dd", linewidth=0.8)
    is_there_n = np.isfinite(x_n)
    x, t = x_n[is_there_n], truth.advantage[is_there_n]
    scale = max(0.0, float(x @ t) / float(x @ x)) if (x != 0).any() else 0.0
    ends = np.array([x.min(), x.max()])
    axes.plot(ends, scale * ends, color="#5b6472", linewidth=1, gid="scale")
    for kind, colour in reversed(_COLOURS.items()):
        is_in = truth.kind[is_there_n] == kind
        axes.plot(x[is_in], t[is_in], "o", color=colour, markersize=2, alpha=0.5, markeredgewidth=0, gid=kind)
    axes.set_title("\n".join(textwrap.wrap(label(one.estimator, 3 * _LETTERS), _LETTERS)), fontsize=7.5)
    grey = {"va": "top", "fontsize": 7.5, "color": "#5b6472", "bbox": _BACKGROUND}
    axes.text(0.03, 0.97, _rho(one.overall), transform=axes.transAxes, **grey)  # type: ignore[arg-type]
    axes.tick_params(labelsize=7)


def _rho(one: Statistic | None) -> str:
    if one is None:
        return "rho is not defined"
    ends = "" if one.low is None else f" [{one.low:.2f}, {one.high:.2f}]"
    return f"rho {one.value:.2f}{ends}"
