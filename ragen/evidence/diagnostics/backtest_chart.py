"""Chart of a back-test: when each rule rang, relative to the fall."""

from collections.abc import Sequence

from starpo.ragen.core.pictures import COLOURS, new_figure, style, svg
from starpo.ragen.evidence.diagnostics.backtest import Score


def draw_leads(scores: Sequence[Score]) -> str:
    """Draw a row for every rule and a dot for every fallen run in which it rang, as an SVG document.

    Args:
        scores: At least one, from top to bottom.
    """
    num_fallen = scores[0].num_fallen
    num_sound = len(scores[0].outcomes) - num_fallen
    with style():
        note = (
            f"A dot: when the alarm first rang in a run whose success halved ({num_fallen} runs), in iterations before "
            f"that. Right: alarms in the {num_sound} runs that did not fall."
        )
        figure = new_figure(7.6, 1.3 + 0.27 * len(scores), "Lead of every alarm", note)
        axes = figure.add_subplot()
        for row, score in enumerate(scores):
            axes.plot(
                [-lead for lead in score.leads],
                [row] * len(score.leads),
                linestyle="none",
                marker="o",
                markersize=5,
                alpha=0.6,
                color=COLOURS[0],
            )
            found = f"{score.num_false} false" + (f", {score.num_missed} missed" if num_fallen else "")
            axes.text(1.01, row, found, transform=axes.get_yaxis_transform(), va="center", color="#5b6472", fontsize=8)
        axes.axvline(0, color=COLOURS[5], linewidth=1)
        axes.set(
            yticks=range(len(scores)),
            yticklabels=[score.rule.name for score in scores],
            ylim=(len(scores) - 0.5, -0.5),
            xlabel="iterations (0: success has halved)",
        )
        axes.grid(axis="x")
        return svg(figure)
