"""A corridor environment, and an engine whose responses come from a script."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import pytest
from transformers import PreTrainedTokenizerFast

from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings


class CorridorSettings(EnvironmentSettings):
    type: Literal["corridor"] = "corridor"
    goal: int = 3
    fault: Literal[
        "none", "reset", "first_reset", "last_reset", "step", "info", "half_reset", "half_step", "unpaid", "nan"
    ] = "none"
    """Injected fault: every reset fails; a reset with dynamics seed 0, or 2, fails; the step to cell 2 fails; `info` is
    incomplete; the observation of the reset, or of the step to cell 2, is half a surrogate pair; the reward of the step
    to cell 2 is None, or NaN."""


class Corridor(Environment[CorridorSettings]):
    """Environment with cells 0, 1, 2, ...: starts in cell 0, ends at the goal; a step costs 0.1 and the goal pays 1."""

    settings_type = CorridorSettings
    action_cost: ClassVar[float] = -0.1
    actions = ("Left", "Right")

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        fault = self.settings.fault
        if fault == "reset" or (fault, dynamics_seed) in (("first_reset", 0), ("last_reset", 2)):
            raise EnvironmentFault("no corridor today")
        self.seed, self.cell = seed, 0
        return "\ud83d" if fault == "half_reset" else self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        cell = max(0, self.cell + (1 if action == "Right" else -1))
        if cell == 2 and self.settings.fault == "step":
            raise RuntimeError("the floor gave way")
        is_effective, self.cell = cell != self.cell, cell
        info = {"cell": cell} if self.settings.fault == "info" else {"cell": cell, "effective": is_effective}
        shown = "\ud83d" if self.settings.fault == "half_step" and cell == 2 else self.render()
        paid: Any = 0.9 if self.is_success else -0.1
        if cell == 2:
            paid = {"unpaid": None, "nan": float("nan")}.get(self.settings.fault, paid)
        return shown, paid, self.is_success, False, info

    @property
    def is_success(self) -> bool:
        return self.cell == self.settings.goal

    def rules(self) -> str:
        return "Walk right."

    def state_digest(self) -> str:
        return f"{self.seed % 2**32:08x}{self.cell:08x}"

    def render(self) -> str:
        return f"P {self.cell}"


Script = Callable[[str, int], str]
"""(trajectory id, turn) -> the policy's response; a text that ends with '...' is cut by length."""


class ScriptedSession:
    """Session with the script's responses; records its requests."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, script: Script, max_tokens: int, stop_token: int) -> None:
        self.requests: list[Request] = []
        self.num_calls = 0
        self.is_closed = False
        self._tokenizer, self._script = tokenizer, script
        self._max_tokens, self._stop_token = max_tokens, stop_token

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.num_calls += 1
        responses = []
        for request in requests:
            turn = sum(earlier.sequence_id == request.sequence_id for earlier in self.requests)
            self.requests.append(request)
            responses.append(self._say(self._script(request.sequence_id, turn)))
        return responses

    def close(self) -> None:
        self.is_closed = True

    def _say(self, text: str) -> Response:
        ids = self._tokenizer.encode(text.removesuffix("..."), add_special_tokens=False)
        is_cut = text.endswith("...") or len(ids) >= self._max_tokens
        ids = ids[: self._max_tokens] if is_cut else [*ids, self._stop_token]
        return Response(ids, [-0.5] * len(ids), "length" if is_cut else "stop")


class ScriptedEngine:
    """Engine with scripted sessions."""

    is_deterministic = True
    is_continuous = False

    def __init__(self, tokenizer: PreTrainedTokenizerFast, script: Script) -> None:
        self.sessions: list[ScriptedSession] = []
        self._tokenizer, self._script = tokenizer, script

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Nothing to load."""

    def session(self, sampling: Any, stop_token_ids: Sequence[int]) -> ScriptedSession:
        session = ScriptedSession(self._tokenizer, self._script, sampling.max_response_tokens, stop_token_ids[0])
        self.sessions.append(session)
        return session


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer of the tiny policy."""
    return make_tokenizer()


@pytest.fixture(scope="session")
def tokenizer_folder(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with only the tiny policy's tokenizer."""
    folder = str(tmp_path_factory.mktemp("tokenizer"))
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def corridor(monkeypatch: pytest.MonkeyPatch) -> type[CorridorSettings]:
    """Settings class of the corridor, which is registered during the test."""
    monkeypatch.setitem(ENVIRONMENTS, "corridor", f"{Corridor.__module__}:Corridor")
    return CorridorSettings


@pytest.fixture
def scripted_engine(tokenizer: PreTrainedTokenizerFast) -> Callable[..., ScriptedEngine]:
    """`scripted_engine(script)`: an engine with this script."""
    return lambda script: ScriptedEngine(tokenizer, script)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> RolloutJob:
    """FrozenLake, played by an untrained policy."""
    folder = str(tmp_path_factory.mktemp("policy"))
    tokenizer = make_tokenizer()
    make_model(TinyPolicy(hidden_size=32, num_layers=1, intermediate_size=64), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return RolloutJob(
        folder, "key", FrozenLakeSettings(), AgentConfig(prompt="state"), SamplingConfig(max_response_tokens=12), 512
    )
