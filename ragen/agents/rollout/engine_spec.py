"""`EngineSpec`: which engine, told how, as it can be handed to another process or actor."""

import json
from dataclasses import dataclass

from starpo.ragen.agents.rollout.engine import RolloutEngine
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ENGINES


@dataclass(frozen=True)
class EngineSpec:
    """The one place where engines are made.

    Attributes:
        name: In `ragen.core.registry.ENGINES`.
        options: Keyword arguments of its class, as JSON.
    """

    name: str
    options: str = "{}"

    @classmethod
    def of(cls, rollout: RolloutConfig) -> "EngineSpec":
        """The engine that these settings ask for."""
        return cls(rollout.engine, json.dumps(rollout.engine_options, sort_keys=True))

    @property
    def is_continuous(self) -> bool:
        """See `RolloutEngine`."""
        return bool(load(ENGINES, self.name).is_continuous)

    def make(self, num_threads: int | None) -> RolloutEngine:
        """An engine without a checkpoint.

        Args:
            num_threads: CPU threads it computes with; None: as many as its library likes.
        """
        engine: RolloutEngine = load(ENGINES, self.name)(num_threads=num_threads, **json.loads(self.options))
        return engine
