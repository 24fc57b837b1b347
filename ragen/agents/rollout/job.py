"""`RolloutJob`: the input that all shards of a rollout share, in a form that can be sent to another process."""

import json
from dataclasses import dataclass

import pyarrow as pa
from pydantic import TypeAdapter

from starpo.ragen.agents.rollout.siblings import SIBLINGS_COLUMN
from starpo.ragen.agents.rollout.turn_images import WITH_IMAGES
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.search import SearchConfig
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.schemas.datasets import TURNS


@dataclass(frozen=True)
class RolloutJob:
    """Everything that a shard's rows depend on besides its episodes.

    Attributes:
        folder: Local folder of the policy.
        checkpoint_key: Its artifact key.
        environment: Settings of the environment.
        agent: How observations become prompts and responses become actions.
        sampling: How tokens are drawn.
        max_context_tokens: Limit of prompt and response together.
        deadline_s: Wall-clock limit of a shard, from its start; None for no limit.
        store_url: The store that has the checkpoint, for workers on other machines; None if there are none.
        search: How responses are selected from several candidates; None to take the first sample.
    """

    folder: str
    checkpoint_key: str
    environment: EnvironmentSettings
    agent: AgentConfig
    sampling: SamplingConfig
    max_context_tokens: int
    deadline_s: float | None = None
    store_url: str | None = None
    search: SearchConfig | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns in which shards travel: those of `turns`, and each turn's images and siblings where it has any."""
        schema = WITH_IMAGES if self.agent.shows_images else TURNS.schema
        return schema if self.search is None else schema.append(SIBLINGS_COLUMN)

    def to_json(self) -> str:
        """Serialise the job for `from_json`."""
        settings = {name: getattr(self, name).model_dump(mode="json") for name in ("environment", "agent", "sampling")}
        search = self.search and self.search.model_dump(mode="json")
        return json.dumps({**self.__dict__, **settings, "search": search})

    @classmethod
    def from_json(cls, text: str) -> "RolloutJob":
        """Read the output of `to_json`; the environment must be registered."""
        values = json.loads(text)
        values["environment"] = TypeAdapter(EnvironmentConfig).validate_python(values["environment"])
        values["agent"] = AgentConfig.model_validate(values["agent"])
        values["sampling"] = SamplingConfig.model_validate(values["sampling"])
        values["search"] = TypeAdapter(SearchConfig | None).validate_python(values["search"])
        return cls(**values)
