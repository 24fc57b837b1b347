"""Settings of engine 'scripted'."""

from typing import Any, ClassVar, Literal

from starpo.ragen.config.engine import EngineConfig


class ScriptedEngineConfig(EngineConfig):
    """Who plays in place of a model: the lower and the upper mark of an evaluation."""

    plays_checkpoint: ClassVar[bool] = False

    player: Literal["random", "solver"] = "solver"
    """'random': random actions of the environment, as many as a turn may have. 'solver': the decisions of the
    environment's demonstrator at full skill."""

    def arguments(self, max_context_tokens: int) -> dict[str, Any]:
        """See `EngineConfig.arguments`."""
        return {"player": self.player}
