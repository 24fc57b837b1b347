"""Settings of the built-in reward components, each under its name in `reward.options` (docs/rewards.md).

The registry names these models, so that settings are validated without importing the implementations.
"""

from collections.abc import Mapping

from pydantic import Field, field_validator, model_validator

from starpo.ragen.core.settings import Settings

NEEDED_TAGS: Mapping[str, str] = {
    "grounding": "observation",
    "world_model": "prediction",
    "reasoning_format": "reasoning",
}
"""Component -> the part of the reasoning that it reads, which `agent.form` must contain."""
THINKING = ("agreement", *NEEDED_TAGS)
"""Components that read the reasoning."""


class StatementOptions(Settings):
    """Options of 'grounding' and of 'world_model', which reward statements about the positions of things."""

    reward: float = Field(0.5, ge=0, le=1000)
    """Reward of statements that are all correct and complete; multiplied by their score, between 0 and 1."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Thing -> weight of its F1 in the score, such as `{ goal = 0.7, hole = 0.3 }`. Empty: equal weights."""
    frequent_texts: int = Field(5, ge=0, le=1000)
    """Number of texts that count as frequent: those given for the most distinct observations of the rollout, at least
    two. 0: none."""
    frequent_score: float = Field(0.7, ge=0, le=1)
    """A frequent text with a score below this gets `frequent_penalty` instead of its reward."""
    frequent_penalty: float = Field(-0.1, le=0, ge=-1000)
    """Reward of such a text."""

    @field_validator("weights")
    @classmethod
    def _weigh_something(cls, weights: dict[str, float]) -> dict[str, float]:
        if any(weight < 0 for weight in weights.values()) or (weights and not any(weights.values())):
            raise ValueError("expected weights of at least 0, and at least one above 0")
        return weights


class AgreementOptions(Settings):
    """Options of 'agreement', which rewards a turn for executing the last plan in its reasoning."""

    reward: float = Field(0.5, ge=0, le=1000)
    """Reward of a plan that was executed exactly; otherwise multiplied by the number of leading actions that agree,
    divided by the larger of the numbers of planned and executed actions."""


class ReasoningFormatOptions(Settings):
    """Options of 'reasoning_format', which rewards reasoning in the agent's form."""

    reward: float = Field(0.5, ge=0, le=1000)
    """Reward of a well-formed response without a blank part in its reasoning."""


class OverlongOptions(Settings):
    """Options of 'overlong', a penalty on the last tokens of a long response (DAPO, overlong shaping)."""

    max_tokens: int = Field(512, ge=1, le=131072)
    """Length of a response, in tokens, from which the full penalty `factor` applies. DAPO:
    rollout.max_response_tokens."""
    buffer_tokens: int = Field(128, ge=1, le=131072)
    """Number of tokens before that length over which the penalty rises linearly from 0."""
    factor: float = Field(1.0, gt=0.0, le=1000.0)
    """The full penalty."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> "OverlongOptions":
        if self.buffer_tokens > self.max_tokens:
            raise ValueError(
                f"buffer_tokens = {self.buffer_tokens} is larger than max_tokens = {self.max_tokens}; expected at most "
                "max_tokens"
            )
        return self
