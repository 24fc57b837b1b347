"""The components of the reward, and how returns are normalised."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from starpo.ragen.core.registry import REWARDS, checked_options, registered
from starpo.ragen.core.settings import Settings


class OverlongConfig(Settings):
    """The component 'overlong': a price on the last tokens that a response may have (DAPO, overlong shaping)."""

    max_tokens: int = Field(512, ge=1, le=131072)
    """Length of a response, in tokens, that costs all of `factor`, as every longer one does. DAPO:
    rollout.max_response_tokens."""
    buffer_tokens: int = Field(128, ge=1, le=131072)
    """Tokens before that length over which the price rises evenly from 0."""
    factor: float = Field(1.0, gt=0.0, le=1000.0)
    """The whole price."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> "OverlongConfig":
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(
                f"buffer_tokens = {self.buffer_tokens} are more than a response of max_tokens = {self.max_tokens} has; "
                "expected at most as many"
            )
        return self


class RewardConfig(Settings):
    """Turns stored facts into rewards; nothing here asks the environment again."""

    components: list[Annotated[str, *registered(REWARDS)]] = Field(["environment", "format", "forfeit"], min_length=1)
    """What a turn is paid for; the components add up to its `total`. 'environment': the sum of its actions' rewards.
    'format': the penalty of a malformed response. 'forfeit': a malformed response pays for the actions that it gave up,
    and a context that is full for all that were left, at the environment's price of an action, so that neither ever
    pays better than acting and failing. 'overlong': a long response pays for its last tokens, see `overlong`."""

    options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Component -> settings of its own, where it is not a built-in one: it finds them in `config.options`."""

    format_penalty: float = Field(-0.1, le=0.0, ge=-1000.0)
    """Added to a turn whose response is malformed (RAGEN, objectives), by the component 'format'. 0: none."""
    overlong: OverlongConfig = OverlongConfig()
    """Of the component 'overlong'; no effect without it."""
    normalisation: Literal["none", "mean", "mean_std", "asymmetric_clip"] = "none"
    """Of the trajectory returns, for the column `normalised_return`: subtract the mean, and divide by the standard
    deviation, over `normalisation_scope`. 'asymmetric_clip' (RAGEN-2) divides by the deviation with ddof 1 plus 1e-6
    and cuts what comes out to -1 .. 3: a rare success counts for much, a failure never for more than one deviation.
    Filters always read the returns before normalisation."""
    std_ddof: Literal[0, 1] = 0
    """Of 'mean_std': the sum of squares is divided by the number n, or by n - 1 (the public code)."""
    normalisation_scope: Literal["group", "environment", "batch"] = "group"
    """Over the group's trajectories, over all of the rollout's that play the same environment (the column `env`), or
    over all of the rollout's."""

    @field_validator("options")
    @classmethod
    def _are_the_components(
        cls, options: dict[str, dict[str, JsonValue]], info: ValidationInfo
    ) -> dict[str, dict[str, Any]]:
        components = info.data.get("components", list(options))
        if strangers := sorted(set(options) - set(components)):
            raise ValueError(f"'{strangers[0]}' is not one of components = {', '.join(components)}")
        checked = {name: checked_options(REWARDS, name, options.get(name, {})) for name in components}
        return {name: values for name, values in checked.items() if values}

    @model_serializer(mode="wrap")
    def _leave_out_what_has_no_effect(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Stage keys are made of this: without the settings of a component that pays nothing, they are as they were."""
        values: dict[str, Any] = serialise(self)
        if "overlong" not in self.components and self.overlong == OverlongConfig():
            values.pop("overlong", None)
        return values

    @model_validator(mode="after")
    def _each_component_once(self) -> "RewardConfig":
        twice = sorted({name for name in self.components if self.components.count(name) > 1})
        if twice:
            raise ValueError(f"components names '{twice[0]}' more than once; a turn is paid for each component once")
        return self
