"""A teacher in the place of the policy: a function that answers a program's calls, to be recorded and imitated.

    messages, task -> the author's function -> a message -> its text, as the policy would write it -> its tokens

What it says has no log-probs: it is imitated, and no update is computed on it.
"""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.policy.recorded import make_recorded_tokenizer, respell
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, EngineError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.lookup import resolve
from starpo.ragen.methods.programs.recording import record
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.spelling import Spelling
from starpo.ragen.methods.programs.tasks import Task, task_of

Teach = Callable[[list[dict[str, str]], dict[str, Any], random.Random], Any]
"""(messages with `role` and `content`, the task, a generator of its own) -> a text, or a message with `content` and
`tool_calls`, each of them `{"name": ..., "arguments": {...}}`."""

NEW_POLICY = TinyPolicy(num_layers=2)
"""Sizes of a new policy: what two cores train in minutes on an agent's conversations."""
_LIMITS = {"max_response_tokens": 10_000, "max_context_tokens": 1_000_000}
_HERMES = files("starpo.ragen.config") / "chat_templates" / "hermes.jinja"
_EXPECTED = (
    'expected a text, or a message such as {"content": "", "tool_calls": [{"name": "look", "arguments": {"shelf": 3}}]}'
)
_FIELDS = {"hermes": "arguments", "llama": "parameters"}


class _Call(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, Any]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    content: str = ""
    tool_calls: list[_Call] = []


class TeacherPlayer:
    """Implements `ragen.agents.rollout.shards.ShardPlayer`: shards whose programs a teacher answers.

    Attributes:
        num_workers: 1.
        is_continuous: False.
    """

    num_workers = 1
    is_continuous = False

    def __init__(self, target: str) -> None:
        """Find the teacher.

        Args:
            target: `module:function`, see `Teach`.

        Raises:
            ConfigError: If it is not found.
        """
        self._name, self._teach = target, resolve(target)

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """See `ShardPlayer.play`.

        Raises:
            EngineError: If the teacher fails, or says what the policy could not.
        """
        settings = job.environment
        assert isinstance(settings, ProgramSettings)
        tasks = {episode.trajectory_id: task_of(settings, episode.env_seed) for episode in episodes}
        tokenizer = load_tokenizer(job.folder)
        form = Spelling(tokenizer, ContextBuilder(tokenizer, job.agent, job.sampling.max_response_tokens)).call_form
        return LocalPlayer(_Engine(tokenizer, _Teacher(self._name, self._teach, form, tasks))).play(job, episodes)

    def stop(self) -> None:
        """Do nothing: there is one shard at a time."""


def record_for_new_policy(
    config: StarPOConfig, target: str, folder: str | Path, num_tasks: int, times: int
) -> pa.Table:
    """Record a teacher's episodes, and make a tiny policy for them, which has random weights and their vocabulary.

    Args:
        config: Settings, see `recording.record`; without a chat template, that of Hermes, which has tools.
        target: `module:function` of the teacher.
        folder: A new folder, for the policy.
        num_tasks: Number of different tasks.
        times: Episodes of each.

    Returns:
        Dataset `turns`, in the policy's tokens.

    Raises:
        ConfigError: If the folder exists, or the teacher is not found.
        EngineError, EnvironmentFault: See `TeacherPlayer.play` and `recording.record`.
    """
    if Path(folder).exists():
        raise ConfigError(f"{folder} already exists, and nothing was recorded: name a new folder for the policy")
    player, tokenizer = TeacherPlayer(target), make_tokenizer()
    template = config.agent.chat_template or _HERMES.read_text(encoding="utf-8")
    # Nothing plays but the teacher, and its words are spelled in bytes until they have a vocabulary: no limit applies.
    config = config.model_copy(
        update={
            "agent": config.agent.model_copy(update={"chat_template": template}),
            "rollout": config.rollout.model_copy(update=_LIMITS),
        }
    )
    with TemporaryDirectory(prefix="ragen-record-") as scratch:
        tokenizer.save_pretrained(scratch)
        turns = record(config, player, scratch, num_tasks, times)
    tokenizer.chat_template = template
    new_tokenizer = make_recorded_tokenizer(turns, tokenizer)
    save_policy(make_model(NEW_POLICY, new_tokenizer), new_tokenizer, folder)
    return respell(turns, tokenizer, new_tokenizer)


class _Teacher:
    """The author's function, and what its answers are as text."""

    def __init__(self, name: str, teach: Teach, form: str, tasks: Mapping[str, Task]) -> None:
        self.name = name
        self._teach, self._form, self._tasks = teach, form, tasks

    def text(self, request: Request) -> str:
        """Return the answer to a request as the policy would write it."""
        task = dict(self._tasks[request.sequence_id.rpartition("/")[0]])
        try:
            with guarded(f"teacher {self.name}", Runtime.current().plugin_limit):
                answer = self._teach(request.messages(), task, random.Random(request.seed))
        except FOREIGN as error:
            fault = describe_fault(error, self.name.partition(":")[0])
            raise EngineError(f"the teacher {self.name} failed: {fault}") from error
        if isinstance(answer, str):
            return answer
        try:
            message = _Message.model_validate(answer)
        except ValidationError:
            raise EngineError(f"the teacher {self.name} returned {repr(answer)[:200]}; {_EXPECTED}") from None
        return "\n".join(filter(None, (message.content, *self._calls(message.tool_calls))))

    def _calls(self, calls: Sequence[_Call]) -> list[str]:
        if self._form not in _FIELDS:
            raise EngineError(
                f"a teacher cannot call tools in the form that this policy's chat template writes, '{self._form}': "
                f"expected {' or '.join(_FIELDS)}; set agent.chat_template"
            )
        texts = [
            json.dumps({"name": call.name, _FIELDS[self._form]: call.arguments}, ensure_ascii=False) for call in calls
        ]
        return [f"<tool_call>\n{text}\n</tool_call>" for text in texts] if self._form == "hermes" else [";".join(texts)]


class _Engine:
    """Implements `RolloutEngine`."""

    is_deterministic = False
    is_continuous = False

    def __init__(self, tokenizer: PreTrainedTokenizerBase, teacher: _Teacher) -> None:
        self._tokenizer, self._teacher = tokenizer, teacher

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Do nothing: the teacher is no checkpoint."""

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> "_Session":
        """Start a session."""
        return _Session(self._tokenizer, self._teacher, sampling.max_response_tokens, stop_token_ids[0])


class _Session:
    """Implements `RolloutSession`. Log-probs are NaN: unknown."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, teacher: _Teacher, max_response_tokens: int, end_id: int
    ) -> None:
        self._tokenizer, self._teacher = tokenizer, teacher
        self._limit, self._end_id = max_response_tokens, end_id

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests, in their order."""
        return [self._response(self._teacher.text(request)) for request in requests]

    def _response(self, text: str) -> Response:
        ids = [*self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True), self._end_id]
        if len(ids) > self._limit:
            raise EngineError(
                f"the teacher {self._teacher.name} said {text[:100]!r}: {len(ids)} tokens with the end token, but "
                f"rollout.max_response_tokens is {self._limit}. Raise it, or let the teacher say less"
            )
        return Response(ids, [math.nan] * len(ids), "stop")

    def close(self) -> None:
        """Do nothing."""
