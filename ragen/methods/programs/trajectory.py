"""One trajectory as a program plays it: its calls, and in the end its rows of `turns`.

    PendingCall -> `ask` -> Request -> (engine) -> `on_response` -> Reply        Ended -> `end` -> rows

A turn is a call that was answered and heard. Its observation is what the messages have that the conversation did not
have before. The reward of the program is that of its last turn. How a program may end:

    done                              the last turn is terminated, with the reward
    died after a refusal for a limit  truncated: the last turn, or for a full context a turn of status 'truncated'
    died of a response that was cut   truncated: the last turn; frameworks may not go on from half a response
    anything else                     a last turn of status 'env_error' or 'timeout', so that no reward is made up: the
                                      trajectory is in no statistic and is not trained on

Whatever was refused, and which sampling settings of the program had no effect, stands in the `info` of the last turn.
"""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.parser import prefilled_tag
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.episode import Episode, Row
from starpo.ragen.agents.rollout.loop import texts_of
from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.seeding import derive_seed, token_uniforms
from starpo.ragen.envs.grammar import write_call
from starpo.ragen.methods.programs.chat import CALL_LIMIT, ChatMessage, ChatRequest, Refusal
from starpo.ragen.methods.programs.conversations import ConversationPrompt, Conversations
from starpo.ragen.methods.programs.endpoint import PendingCall
from starpo.ragen.methods.programs.process import Ended
from starpo.ragen.methods.programs.replies import Reply
from starpo.ragen.methods.programs.reward import reward_of
from starpo.ragen.methods.programs.served import Served
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.spelling import Spelling
from starpo.ragen.methods.programs.tasks import digest
from starpo.ragen.methods.programs.tool_calls import parse_calls
from starpo.schemas.datasets import NO_RESPONSE, UNKNOWN_FINISH

_MAX_OUTPUT = 4000
_USUAL_CHARS_A_TOKEN, _MAX_CHARS_A_TOKEN = 8, 256
"""Longer texts are tokenised in part at first; beyond what any token has, not even that."""
_ERRORS = {"died": "ProgramDied", "hung": "ProgramHung", "flooded": "ProgramFlooded", "done": "ProgramCalledNothing"}


@dataclass(frozen=True)
class ShardContext:
    """What all trajectories of a shard share of policy, sampling and limits.

    Attributes:
        unwanted: Set once the rollout is stopped: rewards that are being computed are not needed any more.
    """

    contexts: ContextBuilder
    tokenizer: PreTrainedTokenizerBase
    spelling: Spelling
    sampling: SamplingConfig
    max_context_tokens: int
    unwanted: Event = field(default_factory=Event)

    def text(self, ids: list[int]) -> str:
        """Return the text of sampled tokens, without the end token."""
        answered = [("", Response(ids, [0.0] * len(ids), "length"))]
        return texts_of(self.tokenizer, answered, self.contexts.stop_token_ids)[0]


@dataclass(frozen=True)
class Turn:
    """A call that was answered."""

    prompt: ConversationPrompt
    response: Response
    text: str
    message: ChatMessage
    is_well_formed: bool
    required: str


class ProgramTrajectory:
    """The calls of one program, and what becomes of them.

    Attributes:
        episode: Its identity.
        task: The task that the program plays.
        rows: Rows of `turns`; empty until the end.
    """

    def __init__(
        self, episode: Episode, settings: ProgramSettings, task: Mapping[str, Any], context: ShardContext
    ) -> None:
        self.episode, self.task = episode, task
        self.rows: list[Row] = []
        self._settings = settings
        self._context = context
        self._opening = prefilled_tag(context.contexts.agent)
        self._conversations = Conversations(context.spelling, context.contexts.agent.earlier_thoughts == "kept")
        self._pending: dict[str, tuple[int, PendingCall, ConversationPrompt]] = {}
        self._turns: dict[int, Turn] = {}
        self._num_calls = self._num_abandoned = 0
        self._limit = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the program waits for a response."""
        return bool(self._pending)

    def ask(self, call: PendingCall, spelled: "Future[ConversationPrompt]") -> Request | None:
        """Return the request for a call; None if the call was refused instead.

        Args:
            call: The call.
            spelled: The result of `prompt` for its request.
        """
        try:
            prompt = spelled.result()
        except Refusal as refusal:
            call.answer(refusal)
            return None
        number, seed = self._num_calls, self.episode.sampling_seed
        self._num_calls += 1
        sequence_id = f"{self.episode.trajectory_id}/{prompt.number}"
        self._pending[sequence_id] = number, call, prompt
        uniforms = token_uniforms(seed, number, self._context.sampling.max_response_tokens)
        turn_seed = derive_seed(seed, "turn", number)
        return Request(sequence_id, prompt.ids, uniforms, turn_seed, call.request.plain, prompt.images)

    def prompt(self, request: ChatRequest) -> ConversationPrompt:
        """Return the context of a request; `ask` must follow before the next one. May be called in any thread.

        Raises:
            Refusal: If the request is not served.
        """
        self._limit = ""
        max_calls, limit = self._settings.max_calls, self._context.max_context_tokens
        if self._num_calls >= max_calls:
            self._limit = "calls"
            message = f"this trajectory has had its {max_calls} responses (environment.max_calls)"
            if self._num_abandoned:
                message += f", of which it did not wait for {self._num_abandoned}: give its client a longer timeout"
            raise Refusal(message, code=CALL_LIMIT)
        self._check_length(request)
        prompt = self._conversations.prompt(request)
        if len(prompt.ids) + self._context.sampling.max_response_tokens > limit:
            self._conversations.withdrawn(prompt)
            raise self._too_long(str(len(prompt.ids)))
        return prompt

    def _check_length(self, request: ChatRequest) -> None:
        """Refuse texts that are surely too long after tokenising as many of them as there is room for."""
        limit = self._context.max_context_tokens
        texts = [request.requirement.schema, request.tools, *(message.content for message in request.messages)]
        texts += [call.arguments for message in request.messages for call in message.calls]
        num_chars, num_tokens = sum(map(len, texts)), 0
        if num_chars > _MAX_CHARS_A_TOKEN * limit:
            raise self._too_long("far more")
        if num_chars > _USUAL_CHARS_A_TOKEN * limit:
            for text in texts:
                start = text[: _USUAL_CHARS_A_TOKEN * limit]
                num_tokens += len(self._context.contexts.encoder.piece(start, is_first=False, should_cache=False))
                if num_tokens > limit:
                    raise self._too_long("far more")

    def _too_long(self, length: str) -> Refusal:
        limit, kept = self._context.max_context_tokens, self._context.sampling.max_response_tokens
        self._limit = f"context full: a prompt of {length} tokens, max_context_tokens = {limit}"
        message = (
            f"messages and tools have {length} tokens, and {kept} are kept for the response; the maximum is {limit}"
        )
        return Refusal(message, code="context_length_exceeded", param="messages")

    def on_response(self, sequence_id: str, response: Response, text: str) -> None:
        """Answer the call that a request was made for.

        Args:
            sequence_id: That of the request.
            response: The response.
            text: Its text without the end token.
        """
        number, call, prompt = self._pending.pop(sequence_id)
        if call.is_abandoned:
            self._num_abandoned += 1
            self._conversations.withdrawn(prompt)
            return
        response, text, visible = self._cut(call.request, response, text)
        if call.request.has_logprobs and any(map(math.isnan, response.logprobs)):
            self._conversations.withdrawn(prompt)
            message = "the server behind this endpoint tells no log-probs: leave logprobs out"
            call.answer(Refusal(message, param="logprobs"))
            return
        form, required = self._context.spelling.call_form, call.request.requirement
        content, calls, could_read = parse_calls(self._opening + visible, form, call.request.tools)
        calls = tuple(replace(one, id=f"c{number:05d}{index:03d}") for index, one in enumerate(calls))
        shown, reasoning = ChatMessage("assistant", content, calls), ""
        if required.is_json:  # it is read by a program, as from a server that tells reasoning apart
            reasoning, content = _without_reasoning(content)
        reply = ChatMessage("assistant", content, calls)
        self._conversations.answered(prompt, reply, response.token_ids, shown)
        # A response as long as the run allows is malformed, one as long as the program wants is not.
        num_allowed = self._context.sampling.max_response_tokens
        is_whole = response.finish_reason == "stop" or len(response.token_ids) < num_allowed
        is_well_formed = is_whole and could_read and required.is_met(content, calls)
        self._turns[number] = Turn(prompt, response, text, reply, is_well_formed, required.name)
        reason = "tool_calls" if calls else response.finish_reason
        name = f"chatcmpl-{self.episode.trajectory_id}-{number}"
        logprobs = self._logprobs(response) if call.request.has_logprobs else None
        call.answer(Reply(name, reply, reason, len(prompt.ids), len(response.token_ids), reasoning, logprobs))

    def _logprobs(self, response: Response) -> list[tuple[str, float]]:
        """Return the text and the log-prob of each token."""
        texts = self._context.tokenizer.batch_decode([[token_id] for token_id in response.token_ids])
        return list(zip(texts, response.logprobs, strict=True))

    def _cut(self, request: ChatRequest, response: Response, text: str) -> tuple[Response, str, str]:
        """Cut a response after the tokens that the request wants: as many as it allows, or up to one of its stops.

        Returns:
            The response, its text, and the text before the stop.
        """
        ids = response.token_ids[: request.max_tokens]
        text = text if len(ids) == len(response.token_ids) else self._context.text(ids)
        stops = [stop for stop in request.stops if stop in text]
        if stops:
            numbers = range(1, len(ids))
            begun = bisect_left(
                numbers, True, key=lambda number: any(stop in self._context.text(ids[:number]) for stop in stops)
            )
            ids = ids[: begun + 1]  # the fewest tokens whose text has a stop
            text = self._context.text(ids)
        elif len(ids) == len(response.token_ids):
            return response, text, text
        kept = Response(ids, response.logprobs[: len(ids)], "stop" if stops else "length")
        return kept, text, text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]

    def end(self, ended: Ended, served: Served) -> None:
        """Make the rows, now that the program has ended.

        Args:
            ended: How it ended.
            served: What its requests were.
        """
        self._make_rows()
        self._end(ended, served)
        self._add_facts(ended.status, served)

    def _end(self, ended: Ended, served: Served) -> None:
        error, message = _ERRORS[ended.status], ended.detail or "it ended without a call that was answered"
        if ended.status == "done" and self._turns:
            try:
                reward, is_success = reward_of(
                    self._settings, self.task, ended, self._transcript(), self._context.unwanted
                )
                self.rows[-1] |= {"action_rewards": [reward], "success": is_success, "terminated": True}
                return
            except StarPOError as problem:
                error, message = "ProgramRewardFailed", str(problem)
        if ended.status == "died" and self._limit == "calls" and self.rows:
            self.rows[-1]["truncated"] = True
        elif ended.status == "died" and self._limit not in ("", "calls"):
            self._add(status="truncated", truncated=True, info=_as_json({"error": self._limit}))
        elif ended.status == "died" and self._was_cut():
            output = without_secrets(ended.output)[-_MAX_OUTPUT:]
            facts = {"error": error, "message": without_secrets(message), "output": output}
            self.rows[-1] |= {"truncated": True, "info": _as_json(json.loads(self.rows[-1]["info"]) | facts)}
        else:
            if reasons := served.reasons or [served.limit] * bool(served.limit):
                message = f"{served.num_refused} of its requests were refused, as: {reasons[0]}; {message}"
            self._fail(error, message, output=without_secrets(ended.output)[-_MAX_OUTPUT:])

    def _was_cut(self) -> bool:
        """Whether the last response ended at the maximum length: it is the policy's fault, which learns from it."""
        return bool(self._turns) and self._turns[max(self._turns)].response.finish_reason == "length"

    def end_unplayed(self, error: str, message: str, served: Served, status: str = "env_error") -> None:
        """Make the rows of a program that was not started, or not ended, with this last turn."""
        self._make_rows()
        self._fail(error, message, status)
        self._add_facts("killed", served)

    def _add_facts(self, status: str, served: Served) -> None:
        """Add to the last turn's `info` what concerns the whole episode."""
        facts: dict[str, Any] = {"program": status, "refused": served.num_refused}
        if self._turns:
            facts["conversations"] = len({turn.prompt.number for turn in self._turns.values()})
        if served.refused:
            facts["refusals"] = served.reasons
        if served.named:
            facts["refused_requests"] = [one.facts for one in served.named]
        if served.limit:
            facts["limit"] = without_secrets(served.limit)
        if served.overridden:
            facts["overridden"] = dict(served.overridden)
        self.rows[-1]["info"] = _as_json(json.loads(self.rows[-1]["info"]) | facts)

    def _transcript(self) -> list[dict[str, Any]]:
        """Return the messages of all turns, in the order of the calls, each with the number of its conversation."""
        return [
            {**message.as_json(), "conversation": turn.prompt.number}
            for _, turn in sorted(self._turns.items())
            for message in (*turn.prompt.new_messages, turn.message)
        ]

    def _make_rows(self) -> None:
        context: list[int] = []
        context_images: tuple[PlacedImage, ...] = ()
        for _, turn in sorted(self._turns.items()):
            ids, images = turn.prompt.ids, turn.prompt.images
            grows = bool(context) and ids[: len(context)] == context and images[: len(context_images)] == context_images
            start = len(context) if grows else 0
            shown = [replace(one, position=one.position - start) for one in images if one.position >= start]
            context, context_images = ids + turn.response.token_ids, images
            facts: dict[str, Any] = {"conversation": turn.prompt.number, "effective": True}
            if turn.required:
                facts["required"] = turn.required
            self._add(
                **self._spoken(turn),
                observation=_observation(turn.prompt.new_messages),
                is_context_start=not grows,
                prompt_ids=ids[start:],
                images=shown,
                info=_as_json(facts),
            )

    def _spoken(self, turn: Turn) -> Row:
        think, answer = _parts(turn.text, self._opening)
        calls = [write_call(call.name, json.loads(call.arguments)) for call in turn.message.calls]
        action = "\n".join(calls) or "message"
        is_known = not any(map(math.isnan, turn.response.logprobs))  # a server's are not
        return {
            "response_ids": turn.response.token_ids,
            "behaviour_logprobs": turn.response.logprobs if is_known else [],
            "response": turn.text,
            "finish_reason": turn.response.finish_reason if is_known else UNKNOWN_FINISH,
            "think": think,
            "answer": answer,
            "parsed_actions": [action],
            "executed_actions": [action],
            "action_rewards": [0.0],
            "action_effective": [True],
            "format_ok": turn.is_well_formed,
            "status": "ok" if turn.is_well_formed else "format_error",
        }

    def _fail(self, error: str, message: str, status: str = "env_error", **facts: str) -> None:
        info = _as_json({"error": error, "message": without_secrets(message), **facts})
        self._add(status=status, truncated=status == "timeout", info=info)

    def _add(self, **columns: Any) -> None:
        turn, initial = len(self.rows), digest(self.task)
        row: Row = {
            **NO_RESPONSE,
            **self.episode.columns(self._settings),
            "turn": turn,
            "observation": "",
            "images": (),
            "is_context_start": turn == 0,
            "action_cost": 0.0,
            "success": False,
            "actions_left": self._settings.max_calls - turn,
            "terminated": False,
            "truncated": False,
            "initial_state_digest": initial,
            "origin": "greedy" if self.episode.is_greedy else "policy",
            **columns,
        }
        history = [self.rows[-1]["state_digest"] if self.rows else initial, row["observation"], row["response"]]
        row["state_digest"] = hashlib.blake2b(json.dumps(history).encode(), digest_size=8).hexdigest()
        self.rows.append(row)


def _parts(text: str, opening: str) -> tuple[str | None, str]:
    """Split a response into its reasoning, if it has some, and the rest; both as they stand in the text."""
    thought, end, rest = text.partition("</think>")
    if not end or not (opening + thought).lstrip().startswith("<think>"):
        return None, text
    return thought.partition("<think>")[2] if "<think>" in thought else thought, rest


def _without_reasoning(text: str) -> tuple[str, str]:
    """Split a response at the end of its reasoning, whose marks go; the reasoning is '' if there is none."""
    thought, end, rest = text.rpartition("</think>")
    return (thought.strip().removeprefix("<think>").strip(), rest.strip()) if end else ("", text)


def _observation(messages: tuple[ChatMessage, ...]) -> str:
    """Return the text of a message; several, or one of the assistant's or with images, as JSON."""
    if len(messages) == 1 and messages[0].role != "assistant" and not messages[0].images:
        return messages[0].content
    return json.dumps([message.as_json() for message in messages], ensure_ascii=False)


def _as_json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, sort_keys=True)
