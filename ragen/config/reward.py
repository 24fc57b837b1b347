"""The components of the reward, and the normalisation of returns."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from starpo.ragen.config.agent import FORMS, AgentConfig
from starpo.ragen.config.reward_components import NEEDED_TAGS, THINKING, OverlongOptions
from starpo.ragen.core.lookup import attached, checked_options, needs, registered
from starpo.ragen.core.registry import REWARDS, SCENES
from starpo.ragen.core.settings import Settings


class RewardConfig(Settings):
    """Turns stored facts into rewards, without calling the environment again."""

    components: list[Annotated[str, *registered(REWARDS)]] = Field(["environment", "format", "forfeit"], min_length=1)
    """Components of a turn's reward; their sum is its `total`. 'environment': the sum of its actions' rewards.
    'format': the penalty of a malformed response. 'forfeit': a malformed response pays for the actions that it
    forfeits, and a full context for all actions left, at the environment's price of an action, so that neither ever
    pays better than acting and failing. 'grounding' and 'world_model': the reasoning's statements about the state
    before and after the turn. 'agreement': executed actions that match the reasoning's plan. 'reasoning_format':
    reasoning in the form required by `agent.form`. 'overlong': a penalty on the last tokens of a long response.
    docs/rewards.md has them all."""

    options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Component -> its own settings, if it has any (docs/rewards.md); a component finds its own by their names in
    `config.options`."""

    format_penalty: float = Field(-0.1, le=0.0, ge=-1000.0)
    """Added to a turn with a malformed response (RAGEN, objectives) by the component 'format'. 0: no penalty."""
    normalisation: Literal["none", "mean", "mean_std", "asymmetric_clip"] = "none"
    """Normalisation of the trajectory returns, for the column `normalised_return`: subtract the mean, and divide by the
    standard deviation, over `normalisation_scope`. 'asymmetric_clip' (RAGEN-2) divides by the standard deviation (ddof
    1) plus 1e-6 and clips the result to [-1, 3]: a rare success counts for much, a failure never for more than one
    deviation. Filters always read the returns before normalisation."""
    std_ddof: Literal[0, 1] = 0
    """Delta degrees of freedom of 'mean_std': the sum of squares is divided by n (0) or by n - 1 (1, the public
    code)."""
    normalisation_scope: Literal["group", "environment", "batch"] = "group"
    """Trajectories over which returns are normalised. 'group': those of the group. 'environment': all of the rollout in
    the same environment (the column `env`; in a mixture, the same part; RAGEN-2's 'inductive'). 'batch': all of the
    rollout."""

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

    @model_validator(mode="after")
    def _each_component_once(self) -> "RewardConfig":
        twice = sorted({name for name in self.components if self.components.count(name) > 1})
        if twice:
            raise ValueError(f"components names '{twice[0]}' more than once; a turn is paid for each component once")
        return self

    def effective(self) -> dict[str, Any]:
        """Return the settings that affect rewards, as JSON, without options in `transport` of a component's model."""
        values = self.model_dump(mode="json")
        for name, options in values["options"].items():
            transport = getattr(attached(REWARDS, name, "options"), "transport", ())
            values["options"][name] = {key: options[key] for key in options if key not in transport}
        return values

    def check_fits(self, types: Mapping[str, str], agent: AgentConfig, max_response_tokens: int) -> None:
        """Check that the inputs of all components are available.

        Args:
            types: Tag -> type of each part of a mixture; for a single environment, its type -> its type.
            agent: Settings of the agent.
            max_response_tokens: Maximum length of a response.

        Raises:
            ValueError: If a component could never pay anything; the message says what it needs.
        """
        overlong = OverlongOptions.model_validate(self.options.get("overlong", {}))
        num_free = overlong.max_tokens - overlong.buffer_tokens
        if "overlong" in self.components and num_free >= max_response_tokens:
            raise ValueError(
                f"reward component 'overlong': its penalty begins after {num_free} tokens, but "
                f"rollout.max_response_tokens = {max_response_tokens} allows no longer response; set "
                f"reward.options.overlong.max_tokens = {max_response_tokens}, and buffer_tokens below it"
            )
        for name in self.components:
            blind = next((part for part, kind in types.items() if kind not in SCENES), None)
            if "scene" in needs(REWARDS, name) and blind is not None:
                kind, which = types[blind], f" (part '{blind}')" if len(types) > 1 or blind != types[blind] else ""
                raise ValueError(
                    f"reward component '{name}' needs the positions of objects, which environment '{kind}'{which} does "
                    f"not provide; environments that do: {', '.join(SCENES)}. Leave the component "
                    "out, or write one of your own (docs/rewards.md)"
                )
            if name in THINKING and not agent.should_think:
                raise ValueError(f"reward component '{name}' reads the reasoning: set agent.should_think = true")
            tag = NEEDED_TAGS.get(name)
            if tag and tag not in FORMS[agent.form]:
                forms = " or ".join(f"'{form}'" for form, tags in FORMS.items() if tag in tags)
                raise ValueError(
                    f"reward component '{name}' reads <{tag}> in the reasoning, which agent.form = '{agent.form}' does "
                    f"not have: set agent.form = {forms}"
                )
