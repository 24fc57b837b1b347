"""The components of the reward, and how returns are normalised."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from starpo.ragen.core.registry import REWARDS, registered
from starpo.ragen.core.settings import Settings


class RewardConfig(Settings):
    """Turns stored facts into rewards; nothing here asks the environment again."""

    components: list[Annotated[str, *registered(REWARDS)]] = Field(["environment", "format", "forfeit"], min_length=1)
    """What a turn is paid for; the components add up to its `total`. 'environment': the sum of its actions' rewards.
    'format': the penalty of a malformed response. 'forfeit': a malformed response pays for the actions that it gave up,
    and a context that is full for all that were left, at the environment's price of an action, so that neither ever
    pays better than acting and failing."""

    format_penalty: float = Field(-0.1, le=0.0, ge=-1000.0)
    """Added to a turn whose response is malformed (RAGEN, objectives), by the component 'format'. 0: none."""
    normalisation: Literal["none", "mean", "mean_std"] = "none"
    """Of the trajectory returns, for the column `normalised_return`: subtract the mean, and divide by the standard
    deviation, over `normalisation_scope`. Filters always read the returns before normalisation."""
    std_ddof: Literal[0, 1] = 0
    """Of that standard deviation: the sum of squares is divided by the number n, or by n - 1 (the public code)."""
    normalisation_scope: Literal["group", "batch"] = "group"
    """Over the group's trajectories, or over all of the iteration's."""

    @model_validator(mode="after")
    def _each_component_once(self) -> "RewardConfig":
        twice = sorted({name for name in self.components if self.components.count(name) > 1})
        if twice:
            raise ValueError(f"components names '{twice[0]}' more than once; a turn is paid for each component once")
        return self
