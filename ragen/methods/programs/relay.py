"""Programs whose calls a server answers that takes messages alone: a teacher's episodes, kept as text.

    program -> endpoint -> PendingCall -> `Relay` -> HTTP -> the server's message -> Reply, or Refusal -> program
    its end -> rows of `turns` without tokens, with the messages in `info` (`schemas.texts`)

No policy takes part: what the server saw and said is known as messages, and no token is guessed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from threading import Event
from typing import Any, cast

import pyarrow as pa

from starpo.ragen.agents.prompting.context import TurnPrompt
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.episode import Episode, Row
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import table_of
from starpo.ragen.agents.rollout.openai.client import open_client
from starpo.ragen.agents.rollout.openai.engine import greet
from starpo.ragen.agents.rollout.openai.errors import explained
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.openai_engine import OpenAIEngineConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.envs.grammar import write_call
from starpo.ragen.methods.programs.chat import Call, ChatMessage, ChatRequest, Refusal, instructed, spelled
from starpo.ragen.methods.programs.conversations import ConversationPrompt
from starpo.ragen.methods.programs.endpoint import Endpoint, PendingCall
from starpo.ragen.methods.programs.player import POLL_S, Shard
from starpo.ragen.methods.programs.replies import Reply
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.tasks import task_of
from starpo.ragen.methods.programs.trajectory import ProgramTrajectory, ShardContext, Turn
from starpo.schemas.datasets import UNKNOWN_FINISH
from starpo.schemas.texts import text_facts

_LARGEST_SEED = 2**31


@dataclass(frozen=True)
class Answer:
    """What the server said.

    Attributes:
        message: The message.
        reasoning: Its reasoning, if the server tells it apart; else ''.
        finish_reason: 'stop', 'length' or 'tool_calls'.
        num_prompt_tokens: As the server counts; 0 if it does not.
        num_response_tokens: Likewise.
    """

    message: ChatMessage
    reasoning: str
    finish_reason: str
    num_prompt_tokens: int
    num_response_tokens: int


@dataclass(frozen=True)
class RelayedRequest(Request):
    """A request that has no tokens.

    Attributes:
        chat: What the program asked for.
    """

    chat: ChatRequest | None = None


class Relay:
    """Sends requests to the server, several at a time, and collects the answers.

    Attributes:
        failures: Number of requests that failed, by the reason that their programs were given.
    """

    def __init__(self, server: OpenAIEngineConfig, sampling: SamplingConfig) -> None:
        """Open a client, which retries by itself.

        Raises:
            MissingPackageError: If the package `openai` is not installed.
        """
        self.failures: Counter[str] = Counter()
        self._server = server
        self._sampling = sampling
        self._client = open_client(server, "starpo record --server")
        self._threads = ThreadPoolExecutor(server.max_concurrent, thread_name_prefix="relay")
        self._in_flight: dict[Future[Answer | Refusal], str] = {}

    def submit(self, requests: Sequence[RelayedRequest]) -> None:
        """Put requests in flight."""
        for request in requests:
            self._in_flight[self._threads.submit(self._ask, request)] = request.sequence_id

    def finished(self) -> list[tuple[str, Answer | Refusal]]:
        """Return the answers that have come, or why there is none; may be empty.

        Raises:
            EngineError: If the server refuses the key or does not have the model.
        """
        done, _ = wait(self._in_flight, timeout=POLL_S, return_when=FIRST_COMPLETED)
        finished = [(self._in_flight.pop(future), future.result()) for future in [*self._in_flight] if future in done]
        self.failures.update(str(answer) for _, answer in finished if isinstance(answer, Refusal))
        return finished

    def close(self) -> None:
        """Abandon what is in flight."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _ask(self, request: RelayedRequest) -> Answer | Refusal:
        import openai

        try:
            return _read(self._client.chat.completions.create(**self._body(request)))
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise explained(error, self._server, self._server.max_retries) from None
        except (openai.OpenAIError, ValueError, AttributeError, TypeError, IndexError) as error:
            message = str(explained(error, self._server, self._server.max_retries))
            is_asked_wrongly = isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError)
            return Refusal(message, code="server_error", status=400 if is_asked_wrongly else 502)

    def _body(self, request: RelayedRequest) -> dict[str, Any]:
        chat, sampling = request.chat, self._sampling
        assert chat is not None
        tools = json.loads(chat.tools)
        return {
            "model": self._server.model,
            "messages": [as_sent(message) for message in instructed(chat.messages, chat.requirement.instruction)],
            self._server.limit_parameter: min(
                chat.max_tokens or sampling.max_response_tokens, sampling.max_response_tokens
            ),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed % _LARGEST_SEED,
            **({"tools": tools} if tools else {}),
            **({"stop": list(chat.stops)} if chat.stops else {}),
        }


def as_sent(message: ChatMessage) -> dict[str, Any]:
    """Return a message in OpenAI's form."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    answered = {"tool_call_id": message.call_id} if message.call_id else {}
    return {"role": message.role, "content": message.content, **answered} | ({"tool_calls": calls} if calls else {})


def _read(completion: Any) -> Answer:
    """Read an answer.

    Raises:
        ValueError, AttributeError, TypeError, IndexError: If it is none.
    """
    choice = completion.choices[0]
    message = choice.message
    calls = []
    for call in message.tool_calls or ():
        arguments = json.loads(call.function.arguments or "{}")
        if not isinstance(arguments, dict):
            raise TypeError
        calls.append(Call(str(call.function.name), spelled(arguments), str(call.id or "")))
    content, reasoning = message.content or "", (message.model_extra or {}).get("reasoning_content") or ""
    if not (isinstance(content, str) and isinstance(reasoning, str)):
        raise TypeError
    reason = "length" if choice.finish_reason == "length" else "stop"
    usage = completion.usage
    numbers = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
    return Answer(
        ChatMessage("assistant", content, tuple(calls)), reasoning, "tool_calls" if calls else reason, *numbers
    )


class RelayPlayer:
    """Implements `agents.rollout.shards.ShardPlayer` for programs, without a policy.

    Attributes:
        failures: Number of requests that failed at the server, by reason.
    """

    num_workers = 1
    is_continuous = True

    def __init__(self, server: OpenAIEngineConfig) -> None:
        self.failures: Counter[str] = Counter()
        self._server = server

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """Play all episodes; see `ShardPlayer.play`. What sampling says is asked of the server.

        Raises:
            EngineError: If the server does not respond, refuses the key or does not have the model.
            EnvironmentFault: If the tasks cannot be read.
        """
        settings = job.environment
        assert isinstance(settings, ProgramSettings)
        context = cast(
            ShardContext, _RelayContext(_NoContexts(job.agent), _Numbers(), job.sampling, job.max_context_tokens)
        )
        trajectories = [
            RelayedTrajectory(episode, settings, task_of(settings, episode.env_seed), context) for episode in episodes
        ]
        greet(self._server)
        relay = Relay(self._server, job.sampling)
        try:
            with Endpoint() as endpoint:
                _RelayShard(cast(Any, relay), endpoint, settings, context, trajectories).play(None)
        finally:
            self.failures += relay.failures
            relay.close()
        return table_of([row for trajectory in trajectories for row in trajectory.rows])

    def stop(self) -> None:
        """Do nothing: there is one shard, and what fails in it ends it."""


@dataclass(frozen=True)
class _NoContexts:
    agent: AgentConfig


@dataclass(frozen=True)
class _RelayContext:
    """What a shard needs to know of a policy where there is none."""

    contexts: _NoContexts
    spelling: "_Numbers"
    sampling: SamplingConfig
    max_context_tokens: int
    unwanted: Event = field(default_factory=Event)


class _Numbers:
    """In place of a chat template: a number for each prompt, so that a context is known by those before it."""

    call_form = ""
    is_verbatim = True

    def __init__(self) -> None:
        self._numbers = count()

    def opening(self, *_: object) -> TurnPrompt:
        return TurnPrompt([next(self._numbers)], is_context_start=True)

    def continuation(self, *_: object) -> TurnPrompt:
        return TurnPrompt([next(self._numbers)], is_context_start=False)


class _RelayShard(Shard):
    """A shard whose calls a relay answers."""

    def _answer(self) -> None:
        for sequence_id, answer in cast(Relay, self._stream).finished():
            trajectory = cast(RelayedTrajectory, self._in_flight.pop(sequence_id))
            if trajectory.episode.trajectory_id in self._live:
                trajectory.take(sequence_id, answer)


class RelayedTrajectory(ProgramTrajectory):
    """The calls of one program that a server answers."""

    def __init__(
        self, episode: Episode, settings: ProgramSettings, task: Mapping[str, Any], context: ShardContext
    ) -> None:
        super().__init__(episode, settings, task, context)
        self._reasoning: dict[int, str] = {}
        self._failure = ""

    def ask(self, call: PendingCall, spelled: Future[ConversationPrompt]) -> Request | None:
        """See `Trajectory.ask`."""
        request = super().ask(call, spelled)
        return None if request is None else RelayedRequest(**vars(request), chat=call.request)

    def _check_length(self, request: ChatRequest) -> None:
        """Check nothing: the server has its own limit."""

    def take(self, sequence_id: str, answer: Answer | Refusal) -> None:
        """Answer the call that a request was made for."""
        number, call, prompt = self._pending.pop(sequence_id)
        if call.is_abandoned or isinstance(answer, Refusal):
            self._conversations.withdrawn(prompt)
            if isinstance(answer, Refusal):
                self._failure = str(answer)
                call.answer(answer)
            return
        message = answer.message
        self._conversations.answered(prompt, message, [])
        calls = [write_call(one.name, json.loads(one.arguments)) for one in message.calls]
        think = f"<think>{answer.reasoning}</think>" if answer.reasoning else ""
        text = think + "\n".join(filter(None, [message.content, *calls]))
        is_whole = bool(text) and answer.finish_reason != "length"
        required = call.request.requirement
        is_well_formed = is_whole and required.is_met(message.content, message.calls)
        self._turns[number] = Turn(prompt, Response([], [], "stop"), text, message, is_well_formed, required.name)
        self._reasoning[number] = answer.reasoning
        name = f"chatcmpl-{self.episode.trajectory_id}-{number}"
        numbers = answer.num_prompt_tokens, answer.num_response_tokens
        call.answer(Reply(name, message, answer.finish_reason, *numbers))

    def _make_rows(self) -> None:
        super()._make_rows()
        for row, (number, turn) in zip(self.rows, sorted(self._turns.items()), strict=True):
            prompt = turn.prompt
            messages = prompt.shown if row["is_context_start"] else prompt.new_messages
            response = _as_stored(turn.message)
            if think := self._reasoning[number]:
                response["reasoning_content"] = think
            tools = json.loads(prompt.tools) if row["is_context_start"] else ()
            spoken = text_facts(list(map(_as_stored, messages)), response, tools, row["observation"], row["response"])
            # Unsorted: a template shows fields of tools and arguments in the sender's order.
            row |= {"prompt_ids": [], "info": json.dumps(json.loads(row["info"]) | spoken)}

    def _spoken(self, turn: Turn) -> Row:
        return super()._spoken(turn) | {"finish_reason": UNKNOWN_FINISH}

    def _fail(self, error: str, message: str, status: str = "env_error", **facts: str) -> None:
        super()._fail(error, message, status, **facts, **({"server": self._failure} if self._failure else {}))


def _as_stored(message: ChatMessage) -> dict[str, Any]:
    """Return a message as chat templates take it."""
    sent = as_sent(message)
    for call in sent.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return sent
