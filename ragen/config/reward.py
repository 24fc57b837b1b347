"""The components of the reward, and how returns are normalised."""

from typing import Literal

from pydantic import Field

from ragen.settings import Settings


class RewardConfig(Settings):
    """Turns stored facts into rewards; nothing here asks the environment again.

    Components: `environment` (the sum of the turn's action rewards), `format` (the penalty), `forfeit` (the price of
    the actions that were given up). The three add up to the turn's `total`.
    """

    format_penalty: float = Field(-0.1, le=0.0, ge=-1000.0)
    """Added to a turn whose response is malformed (PAPER section 2). 0: none."""
    should_forfeit_actions: bool = True
    """A malformed response pays for the actions that it could have taken, and a context that is full for all that were
    left, at the environment's price of an action: neither ever pays better than acting and failing."""
    normalisation: Literal["none", "mean", "mean_std"] = "none"
    """Of the trajectory returns, for the column `normalised_return`: subtract the mean, and divide by the standard
    deviation, over `normalisation_scope`. Filters always read the returns before normalisation."""
    std_ddof: Literal[0, 1] = 0
    """Of that standard deviation: the sum of squares is divided by the number n, or by n - 1 (the public code)."""
    normalisation_scope: Literal["group", "batch"] = "group"
    """Over the group's trajectories, or over all of the iteration's."""
