"""Pairs: every line of a leaderboard against every line above it, on the initial states that both played.

policy -> panel -> Measured, best first --compare_pairs--> Pair
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from starpo.ragen.agents.evaluation.comparison import Counts, paired_comparison
from starpo.ragen.studies.result import ResultPart
from starpo.ragen.studies.scores import Comparison, Measured, corrected

Policy = tuple[str, int, float]
"""Run, iteration, temperature: a line of a leaderboard."""
_Of = tuple[Policy, Policy]


class PanelPair(ResultPart):
    """Two lines of a leaderboard on one panel."""

    difference: Comparison | None
    """Success of the line minus that of the other; None without a prompt in common."""
    return_difference: Comparison | None
    """Mean return, likewise."""


class Pair(ResultPart):
    """A line of a leaderboard against one above it; differences are those of the line minus the other."""

    run: str
    """Run of the line."""
    iteration: int
    """Its checkpoint."""
    temperature: float
    """Its sampling temperature."""
    to_run: str
    """Run of the other line, with which it is compared."""
    to_iteration: int
    """Its checkpoint."""
    to_temperature: float
    """Its sampling temperature."""
    difference: Comparison | None
    """Difference of success, mean over the panels; None if there is a panel without a prompt in common."""
    panels: dict[str, PanelPair]
    """Panel -> differences on it."""

    @property
    def line(self) -> Policy:
        """The line."""
        return self.run, self.iteration, self.temperature

    @property
    def other(self) -> Policy:
        """The line with which it is compared."""
        return self.to_run, self.to_iteration, self.to_temperature


def compare_pairs(policies: Mapping[Policy, Mapping[str, Measured]], order: Sequence[Policy]) -> list[Pair]:
    """Compare every two lines; of one panel and measure, p-values are corrected for all of them together.

    Args:
        policies: Line -> panel -> its measurements; the same panels for all lines.
        order: The lines, best first.

    Returns:
        All pairs with the first line, then all others with the second, and so on.
    """
    pairs = [(policy, other) for other, policy in combinations(order, 2)]
    names = list(policies[order[0]]) if order else []
    successes = {panel: _compared({of: [_counts(policies, of, panel)] for of in pairs}) for panel in names}
    returns = {panel: _compared({of: [_returns(policies, of, panel)] for of in pairs}, None) for panel in names}
    overall = (
        successes[names[0]]
        if len(names) == 1
        else _compared({of: [_counts(policies, of, panel) for panel in names] for of in pairs})
    )
    return [
        Pair(
            run=policy[0],
            iteration=policy[1],
            temperature=policy[2],
            to_run=other[0],
            to_iteration=other[1],
            to_temperature=other[2],
            difference=overall.get((policy, other)),
            panels={
                panel: PanelPair(
                    difference=successes[panel].get((policy, other)),
                    return_difference=returns[panel].get((policy, other)),
                )
                for panel in names
            },
        )
        for policy, other in pairs
    ]


def _counts(policies: Mapping[Policy, Mapping[str, Measured]], of: _Of, panel: str) -> tuple[Counts, Counts]:
    policy, other = of
    return policies[policy][panel].counts, policies[other][panel].counts


def _returns(policies: Mapping[Policy, Mapping[str, Measured]], of: _Of, panel: str) -> tuple[Counts, Counts]:
    policy, other = of
    return policies[policy][panel].returns, policies[other][panel].returns


def _compared(
    pairs: Mapping[_Of, Sequence[tuple[Counts, Counts]]], reach: float | None = 1.0
) -> Mapping[_Of, Comparison]:
    """Compare pairs by their counts on each panel; those without a prompt in common are absent. `reach` as for
    `paired_comparison`."""
    differences = {of: difference for of, panels in pairs.items() if (difference := paired_comparison(panels, reach))}
    return corrected(differences)
