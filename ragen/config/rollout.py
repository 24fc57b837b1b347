"""Sampling, the sizes of groups and shards, and the engine."""

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from starpo.ragen.config.openai_engine import OpenAIEngineConfig
from starpo.ragen.config.search import SearchConfig
from starpo.ragen.config.vllm_engine import VLLMEngineConfig
from starpo.ragen.core.lookup import registered
from starpo.ragen.core.registry import ENGINES
from starpo.ragen.core.settings import Settings


class SamplingConfig(Settings):
    """How tokens are drawn."""

    temperature: float = Field(1.0, ge=0.0, le=10.0)
    """Divides the logits. 0: always the most probable token (the first of equals)."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Draw from the smallest set of tokens whose probabilities add up to this. 1: from all. Below 1 stored log-probs
    are those of the cut distribution, which the learner does not score: its distance to what was sampled
    (`kl_behaviour`, the validity metrics) then holds the cut as well, and what needs that distance is refused."""
    max_response_tokens: int = Field(400, ge=1, le=131072)
    """Tokens a response; one that reaches this without its end token is malformed ('length')."""


class RolloutConfig(SamplingConfig):
    """One rollout: P groups of N trajectories (RAGEN, the agent as an MDP)."""

    num_groups: int = Field(8, ge=1, le=100_000)
    """P: initial states an iteration."""
    group_size: int = Field(16, ge=1, le=10_000)
    """N: trajectories from each initial state."""
    max_attempts: int = Field(1, ge=1, le=100)
    """Rollouts of num_groups groups that an iteration plays at most, until the filter has kept filter.num_wanted groups
    of them all (DAPO's dynamic sampling). Each plays initial states of its own, and all are stored. Where they run out,
    the update is on what was kept. 1: what the one rollout gives."""
    num_greedy: int = Field(0, ge=0, le=1)
    """Members beside those N that are played at temperature 0: a group's baseline (ReMax). They are stored with origin
    'greedy', and are in no statistic, no filter's score and no training data. 0: none."""
    search: SearchConfig | None = None
    """Choose every turn's response among several, each tried on a copy of the environment. What is chosen is stored
    with origin 'search', the others as dataset `siblings`; update.search_rows says what is made of it. Greedy members
    and evaluations are played without. None: the first response sampled is taken."""
    shard_groups: int = Field(4, ge=1, le=100_000)
    """Whole groups that are generated together. Same shard, same bytes, whichever worker runs it."""
    max_context_tokens: int = Field(4096, ge=16, le=1_048_576)
    """Prompt and response together; a trajectory that would pass it ends with status 'truncated'."""
    deadline_s: float | None = Field(None, gt=0)
    """Wall-clock limit of a shard; trajectories unfinished by then end with status 'timeout'. What is played then
    depends on the machine's speed, and its manifest says that it need not come out again. None: no limit."""
    staleness: int = Field(0, ge=0, le=1)
    """Updates by which the policy that plays is behind the one that learns. 1: the next rollout is played during the
    update, by the checkpoint that the update began with; needs update.importance_cap, or update.ratio_to = 'behaviour'.
    0: one after the other."""
    engine: Annotated[str, *registered(ENGINES)] = "torch"
    """What generates: 'torch' in one process or in workers, 'vllm' where it is installed; 'openai' only evaluates."""
    vllm: VLLMEngineConfig = VLLMEngineConfig()
    """Of engine 'vllm'; no effect on others."""
    openai: OpenAIEngineConfig = OpenAIEngineConfig()
    """Of engine 'openai'; no effect on others."""

    @property
    def sampling(self) -> SamplingConfig:
        """How tokens are drawn, alone."""
        return SamplingConfig(**{name: getattr(self, name) for name in SamplingConfig.model_fields})

    @property
    def engine_options(self) -> dict[str, Any]:
        """What the engine is told when it is made, besides its number of threads; as JSON has it."""
        tables: dict[str, VLLMEngineConfig | OpenAIEngineConfig] = {"vllm": self.vllm, "openai": self.openai}
        if self.engine not in tables:
            return {}
        options = tables[self.engine].model_dump(mode="json")
        return {**options, "max_context_tokens": self.max_context_tokens} if self.engine == "vllm" else options

    @model_serializer(mode="wrap")
    def _leave_out_what_has_no_effect(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Stage keys are made of this: without the tables of other engines, rollouts keep the keys they had."""
        values: dict[str, Any] = serialise(self)
        for name, default in (("vllm", VLLMEngineConfig()), ("openai", OpenAIEngineConfig())):
            if name != self.engine and getattr(self, name) == default:
                values.pop(name, None)
        for name, idle in (("staleness", 0), ("max_attempts", 1), ("num_greedy", 0), ("search", None)):
            if getattr(self, name) == idle:
                values.pop(name, None)
        return values

    @model_validator(mode="after")
    def _openai_knows_its_server(self) -> "RolloutConfig":
        if self.engine == "openai" and not (self.openai.base_url and self.openai.model):
            raise ValueError(
                "engine = 'openai' needs openai.base_url, such as 'http://127.0.0.1:8000/v1', and openai.model, the "
                "name under which that server knows the model"
            )
        return self

    @model_validator(mode="after")
    def _groups_can_vary(self) -> "RolloutConfig":
        if self.temperature == 0.0 and self.group_size > 1:
            raise ValueError(
                "temperature = 0 makes every member of a group alike, so nothing can be learned from it; "
                "set temperature above 0, or group_size = 1"
            )
        if self.temperature == 0.0 and self.search is not None:
            raise ValueError(
                "temperature = 0 makes all candidates of search alike, so there is nothing to choose: set temperature "
                "above 0, or leave search out"
            )
        return self
