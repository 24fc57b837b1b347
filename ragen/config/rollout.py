"""Sampling, the sizes of groups and shards, and the engine."""

from typing import Annotated

from pydantic import Field, model_validator

from ragen.registry import ENGINES, registered
from ragen.settings import Settings


class SamplingConfig(Settings):
    """How tokens are drawn."""

    temperature: float = Field(1.0, ge=0.0, le=10.0)
    """Divides the logits. 0: always the most probable token (the first of equals)."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Draw from the smallest set of tokens whose probabilities add up to this. 1: from all."""
    max_response_tokens: int = Field(400, ge=1, le=131072)
    """Tokens a response; one that reaches this without its end token is malformed ('length')."""


class RolloutConfig(SamplingConfig):
    """One rollout: P groups of N trajectories (PAPER section 1)."""

    num_groups: int = Field(8, ge=1, le=100_000)
    """P: initial states an iteration."""
    group_size: int = Field(16, ge=1, le=10_000)
    """N: trajectories from each initial state."""
    shard_groups: int = Field(4, ge=1, le=100_000)
    """Whole groups that are generated together. Same shard, same bytes, whichever worker runs it."""
    max_context_tokens: int = Field(4096, ge=16, le=1_048_576)
    """Prompt and response together; a trajectory that would pass it ends with status 'truncated'."""
    deadline_s: float | None = Field(None, gt=0)
    """Wall-clock limit of a shard; trajectories unfinished by then end with status 'timeout'. None: no limit."""
    engine: Annotated[str, *registered(ENGINES)] = "torch"
    """What generates."""

    @property
    def sampling(self) -> SamplingConfig:
        """How tokens are drawn, alone."""
        return SamplingConfig(**{name: getattr(self, name) for name in SamplingConfig.model_fields})

    @model_validator(mode="after")
    def _groups_can_vary(self) -> "RolloutConfig":
        if self.temperature == 0.0 and self.group_size > 1:
            raise ValueError(
                "temperature = 0 makes every member of a group alike, so nothing can be learned from it; "
                "set temperature above 0, or group_size = 1"
            )
        return self
