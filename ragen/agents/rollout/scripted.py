"""An engine without a model: random actions, or the environment's solver. For evaluation, as lower and upper marks.

Request.decide(player, random numbers of the request's seed) -> Response, log-probs NaN
"""

import math
import random
from collections.abc import Sequence

from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError


class ScriptedEngine:
    """Implements `ragen.agents.rollout.engine.RolloutEngine` and its sessions, which have no state.

    Attributes:
        is_deterministic: True.
        is_continuous: False.
    """

    is_deterministic = True
    is_continuous = False

    def __init__(self, player: str, num_threads: int | None = None) -> None:
        """Choose the player.

        Args:
            player: 'random' or 'solver'.
            num_threads: No effect.
        """
        self._player = player

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Load nothing: no checkpoint plays."""

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> "ScriptedEngine":
        """See `RolloutEngine.session`; temperature and top-p have no effect."""
        return self

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """See `RolloutSession.generate`.

        Raises:
            EngineError: If a request comes without an environment.
            ConfigError: If the solver is asked, and the environment has none.
        """
        return [self._respond(request) for request in requests]

    def close(self) -> None:
        """Do nothing."""

    def _respond(self, request: Request) -> Response:
        if request.decide is None:
            raise EngineError(
                "engine 'scripted' plays environments that are stepped by actions; a program asks a model"
            )
        ids = request.decide(self._player, random.Random(request.seed))
        return Response(ids, [math.nan] * len(ids), "stop")
