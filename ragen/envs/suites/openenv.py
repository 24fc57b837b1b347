"""A server that implements OpenEnv's protocol: an action is one JSON field, an observation is JSON or one field of it.

Whether a server honours seeds is tested in two sessions.
"""

import json
import random
import re
import weakref
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from starpo.ragen.core.errors import EnvironmentFault, first_line
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.grammar import FreeText
from starpo.ragen.envs.suites.bridge import begun, finished
from starpo.ragen.envs.suites.suite import StepResult, Suite, SuiteSettings, missing

_WORD = re.compile(r"\w+")
_SEEDS = 2**31


class OpenEnvSettings(SuiteSettings):
    """Server address and the fields that hold its texts."""

    type: Literal["openenv"] = "openenv"
    task: str = Field(min_length=1, max_length=400)
    """Address of the server, such as `http://localhost:8000`; `config` is passed to every reset."""
    action_field: str = Field("message", min_length=1, max_length=400)
    """Action field that receives the agent's text."""
    observation_field: str = Field("", max_length=400)
    """Observation field to show. Empty: the whole observation, as JSON."""
    max_action_chars: int = Field(4000, ge=1, le=100_000)
    """Longer actions are rejected."""
    success_at: float = 1.0
    """An episode that ends with a total reward of at least this is a success."""
    action_cost: float = Field(0.0, le=0.0)
    """Reward of the least rewarding ordinary action; a malformed response pays it (`forfeit`)."""
    timeout_s: float = Field(60.0, gt=0.0)
    """Timeout of each request to the server, in seconds."""


class OpenEnvServer(Suite[OpenEnvSettings]):
    """Environment on an OpenEnv server; all its episodes share one session."""

    settings_type = OpenEnvSettings
    name: ClassVar[str] = "openenv"

    def __init__(self, settings: OpenEnvSettings) -> None:
        super().__init__(settings)
        _client_type()
        self.action_cost = settings.action_cost  # type: ignore[misc]
        self._session: Any = None
        self._total = 0.0

    @property
    def grammar(self) -> FreeText:
        """Free text."""
        return FreeText("Your action is free text.", self.settings.max_action_chars)

    def begin(self, seed: int, dynamics_seed: int) -> str:
        """See `Suite.begin`."""
        self._total = 0.0
        if self._session is None:
            self._session = _client_type()(base_url=self.settings.task, message_timeout_s=self.settings.timeout_s)
            weakref.finalize(self, begun, self._session.close).atexit = False
        chosen = self.settings.config | {"seed": derive_seed(seed, "openenv") % _SEEDS}
        return _text(_answer(self._session.reset(**chosen), self.settings), self.settings)

    def take(self, action: str) -> StepResult:
        """See `Suite.take`."""
        result = _answer(self._session.step({self.settings.action_field: action}), self.settings)
        reward = float(result.reward or 0.0)
        self._total += reward
        is_over = bool(result.done)
        is_success = is_over and self._total >= self.settings.success_at
        return StepResult(_text(result, self.settings), reward, is_over, is_success)

    def clone(self, dynamics_seed: int) -> Self:
        """Raise an error: a session cannot be copied.

        Raises:
            EnvironmentFault: Always.
        """
        raise EnvironmentFault(f"openenv/{self.settings.task}: a server's session cannot be copied")

    def random_action(self, rng: random.Random) -> str:
        """Return a word of the observation."""
        return rng.choice(_WORD.findall(self.render()) or ["0"])[: self.settings.max_action_chars]


def _client_type() -> Any:
    """Return the package's client class that works with any server.

    Raises:
        MissingPackageError: If openenv-core is not installed.
    """
    try:
        from openenv.core import GenericEnvClient
    except ImportError as error:
        raise missing("openenv", error) from error
    return GenericEnvClient


def _answer(request: Any, settings: OpenEnvSettings) -> Any:
    """Wait for the server's answer.

    Raises:
        EnvironmentFault: If the request fails or times out.
    """
    try:
        return finished(request, settings.timeout_s)
    except Exception as error:  # a third-party server, over a network
        raise EnvironmentFault(
            f"openenv/{settings.task} does not answer: {type(error).__name__}: {first_line(error)}"
        ) from error


def _text(result: Any, settings: OpenEnvSettings) -> str:
    observation = result.observation
    if settings.observation_field:
        if settings.observation_field not in observation:
            raise EnvironmentFault(
                f"openenv/{settings.task} has no field {settings.observation_field!r} in its observations; it has "
                f"{', '.join(map(str, observation))}"
            )
        return str(observation[settings.observation_field])
    return json.dumps(observation, ensure_ascii=False, sort_keys=True)
