"""`EngineSpec`: an engine and its options, in a form that can be sent to another process or actor."""

import json
from dataclasses import dataclass

from starpo.ragen.agents.rollout.engine import RolloutEngine
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ENGINES


@dataclass(frozen=True)
class EngineSpec:
    """An engine and its options; the only place where engines are created.

    Attributes:
        name: Name in `ragen.core.registry.ENGINES`.
        options: Keyword arguments of its class, as JSON.
    """

    name: str
    options: str = "{}"

    @classmethod
    def of(cls, rollout: RolloutConfig) -> "EngineSpec":
        """Return the spec of the engine that these settings select."""
        arguments = rollout.engine_config.arguments(rollout.max_context_tokens)
        return cls(rollout.engine, json.dumps(arguments, sort_keys=True))

    @property
    def is_continuous(self) -> bool:
        """See `RolloutEngine`."""
        return bool(load(ENGINES, self.name).is_continuous)

    def make(self, num_threads: int | None) -> RolloutEngine:
        """Create an engine without a checkpoint.

        Args:
            num_threads: Number of CPU threads for computation; None for its library's default.
        """
        engine: RolloutEngine = load(ENGINES, self.name)(num_threads=num_threads, **json.loads(self.options))
        return engine
