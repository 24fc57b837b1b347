"""Sampling, group and shard sizes, and the engine."""

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from starpo.ragen.config.engine import EngineConfig
from starpo.ragen.config.search import SearchConfig
from starpo.ragen.core.lookup import registered, with_tables
from starpo.ragen.core.registry import ENGINES
from starpo.ragen.core.settings import Settings


class SamplingConfig(Settings):
    """How tokens are sampled."""

    temperature: float = Field(1.0, ge=0.0, le=10.0)
    """Divisor of the logits. 0: greedy decoding (the first of equally probable tokens)."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Sample from the smallest set of tokens whose probabilities add up to this. 1: from all tokens. Below 1, the
    stored log-probs are those of the truncated distribution, which the learner does not compute: the learner's distance
    to the behaviour policy (`kl_behaviour`, the validity metrics) then includes the truncation, and settings that need
    that distance are rejected."""
    max_response_tokens: int = Field(400, ge=1, le=131072)
    """Maximum number of tokens per response; a response that reaches it without its end token is malformed
    ('length')."""


@with_tables(ENGINES, "engine")
class RolloutConfig(SamplingConfig):
    """Settings of a rollout: P groups of N trajectories (RAGEN, the agent as an MDP)."""

    num_groups: int = Field(8, ge=1, le=100_000)
    """P: initial states per iteration."""
    group_size: int = Field(16, ge=1, le=10_000)
    """N: trajectories per initial state."""
    max_attempts: int = Field(1, ge=1, le=100)
    """Maximum number of rollouts of num_groups groups per iteration, played until the filter has kept filter.num_wanted
    groups in total (DAPO's dynamic sampling). Each plays its own initial states, and all are stored. If the attempts
    run out, the update uses what was kept. 1: a single rollout."""
    num_greedy: int = Field(0, ge=0, le=1)
    """Additional group members played at temperature 0, the group's baseline (ReMax). They are stored with origin
    'greedy' and excluded from all statistics, filter scores and training data. 0: none."""
    search: SearchConfig | None = None
    """Choose every turn's response among several samples, each executed on a copy of the environment. The chosen
    response is stored with origin 'search', all candidates in the dataset `siblings`; update.search_rows controls how
    chosen responses are trained on. Greedy members and evaluations do not search. None: the first sampled response is
    used."""
    shard_groups: int = Field(4, ge=1, le=100_000)
    """Number of whole groups that are generated together. The same shard gives the same bytes, whichever worker runs
    it."""
    max_context_tokens: int = Field(4096, ge=16, le=1_048_576)
    """Maximum length of prompt and response together; a trajectory that would exceed it ends with status
    'truncated'."""
    deadline_s: float | None = Field(None, gt=0)
    """Wall-clock limit of a shard, in seconds; trajectories unfinished by then end with status 'timeout'. Results then
    depend on the machine's speed, and the manifest records that they may not be reproducible. None: no limit."""
    staleness: int = Field(0, ge=0, le=1)
    """Number of updates by which the behaviour policy lags behind the learner. 1: the next rollout is played during the
    update, by the checkpoint that the update started from; needs update.importance_cap, or update.ratio_to =
    'behaviour'. 0: rollout and update alternate."""
    engine: Annotated[str, *registered(ENGINES)] = "torch"
    """Generation engine: 'torch' in one process or in workers; 'vllm' if it is installed; 'openai' for evaluation
    only."""

    @property
    def sampling(self) -> SamplingConfig:
        """The sampling settings alone."""
        return SamplingConfig(**{name: getattr(self, name) for name in SamplingConfig.model_fields})

    @property
    def engine_config(self) -> EngineConfig:
        """What the engine declares."""
        return getattr(self, self.engine, EngineConfig())

    @model_serializer(mode="wrap")
    def _leave_out_other_engines(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Drop the tables of other engines, as far as they are as by default: neither stage keys nor stored settings
        then depend on which engines are installed."""
        values: dict[str, Any] = serialise(self)
        for name in (ENGINES.keys() - {self.engine}) & values.keys():
            if getattr(self, name) == type(self).model_fields[name].default:
                del values[name]
        return values

    @model_validator(mode="after")
    def _engine_has_its_arguments(self) -> "RolloutConfig":
        self.engine_config.arguments(self.max_context_tokens)
        return self

    @model_validator(mode="after")
    def _groups_can_vary(self) -> "RolloutConfig":
        if self.temperature == 0.0 and self.group_size > 1:
            raise ValueError(
                "temperature = 0 makes all members of a group identical, so nothing can be learned from it; "
                "set temperature above 0, or group_size = 1"
            )
        if self.temperature == 0.0 and self.search is not None:
            raise ValueError(
                "temperature = 0 makes all candidates of search identical, so there is nothing to choose: set "
                "temperature above 0, or leave search out"
            )
        return self

    @model_validator(mode="after")
    def _limits_agree(self) -> "RolloutConfig":
        if self.max_response_tokens >= self.max_context_tokens:
            raise ValueError("max_context_tokens must be larger than max_response_tokens")
        if self.max_attempts > 1 and self.staleness > 0:
            raise ValueError(
                "staleness = 1 plays the next rollout during the update before it, but whether another attempt "
                "is needed is known only after its filter; set max_attempts = 1, or staleness = 0"
            )
        return self
