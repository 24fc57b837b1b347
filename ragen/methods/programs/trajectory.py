"""One trajectory as a program plays it: its calls, and in the end its rows of `turns`.

    PendingCall -> `ask` -> Request -> (engine) -> `hear` -> Reply        Ended -> `end` -> rows

A turn is a call that was answered and heard. Its observation is what the messages have that the conversation did not
have before. The reward of the program is that of its last turn. How a program may end:

    done                                'ok' or 'format_error', terminated, with the reward
    died after a refusal for a limit    the last turn is truncated; for a full context, by a turn of status 'truncated'
    anything else                       a last turn of status 'env_error' or 'timeout', so that no reward is made up:
                                        the trajectory is in no statistic and is not trained on
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.parser import prefilled_tag
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.episode import Episode, Row
from starpo.ragen.agents.rollout.loop import texts_of
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.seeding import derive_seed, token_uniforms
from starpo.ragen.envs.grammar import write_call
from starpo.ragen.methods.programs.chat import ChatMessage, ChatRequest, Refusal
from starpo.ragen.methods.programs.conversations import Conversations, Prompt
from starpo.ragen.methods.programs.endpoint import PendingCall
from starpo.ragen.methods.programs.process import Ended
from starpo.ragen.methods.programs.replies import Reply
from starpo.ragen.methods.programs.reward import reward_of
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.spelling import Spelling
from starpo.ragen.methods.programs.tasks import digest
from starpo.ragen.methods.programs.tool_calls import parse_calls
from starpo.schemas.datasets import NO_RESPONSE

_MAX_OUTPUT = 4000
_MAX_CHARS_A_TOKEN = 256
"""More than a token has; longer texts are not even tokenised."""
_ERRORS = {"died": "ProgramDied", "hung": "ProgramHung", "flooded": "ProgramFlooded"}


@dataclass(frozen=True)
class Policy:
    """What all trajectories of a shard share on the side of the policy."""

    contexts: ContextBuilder
    tokenizer: PreTrainedTokenizerBase
    spelling: Spelling
    sampling: SamplingConfig
    max_context_tokens: int


@dataclass(frozen=True)
class _Asked:
    """A call at work."""

    call: PendingCall
    prompt: Prompt
    number: int


@dataclass(frozen=True)
class _Turn:
    """A call that was answered."""

    prompt: Prompt
    response: Response
    text: str
    said: ChatMessage
    is_well_formed: bool


class Trajectory:
    """The calls of one program, and what becomes of them.

    Attributes:
        episode: Its identity.
        task: The task that the program plays.
        rows: Rows of `turns`; empty until the end.
    """

    def __init__(self, episode: Episode, settings: ProgramSettings, task: Mapping[str, Any], policy: Policy) -> None:
        self.episode = episode
        self.task = task
        self.rows: list[Row] = []
        self._settings = settings
        self._policy = policy
        agent = policy.contexts.agent
        self._opening = prefilled_tag(agent)
        self._conversations = Conversations(policy.spelling, agent.earlier_thoughts == "kept")
        self._asked: dict[str, _Asked] = {}
        self._turns: dict[int, _Turn] = {}
        self._num_calls = self._num_refused = 0
        self._limit = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the program waits for a response."""
        return bool(self._asked)

    def ask(self, call: PendingCall) -> Request | None:
        """Return the request for a call; None if the call was refused instead."""
        try:
            return self._ask(call)
        except Refusal as refusal:
            self._num_refused += 1
            call.answer(refusal)
            return None

    def _ask(self, call: PendingCall) -> Request:
        self._limit = ""
        if self._num_calls >= self._settings.max_calls:
            self._limit = "calls"
            raise Refusal(
                f"this trajectory has had its {self._settings.max_calls} responses (max_calls)",
                code="call_limit_exceeded",
            )
        sampling, limit = self._policy.sampling, self._policy.max_context_tokens
        if sum(len(message.content) for message in call.request.messages) > _MAX_CHARS_A_TOKEN * limit:
            raise self._too_long("far more")
        prompt = self._conversations.prompt(call.request)
        if len(prompt.ids) + sampling.max_response_tokens > limit:
            self._conversations.withdrawn(prompt)
            raise self._too_long(str(len(prompt.ids)))
        number = self._num_calls
        self._num_calls += 1
        sequence_id = f"{self.episode.trajectory_id}/{prompt.number}"
        self._asked[sequence_id] = _Asked(call, prompt, number)
        seed = self.episode.sampling_seed
        return Request(
            sequence_id=sequence_id,
            prompt_ids=prompt.ids,
            uniforms=token_uniforms(seed, number, sampling.max_response_tokens),
            seed=derive_seed(seed, "turn", number),
        )

    def _too_long(self, found: str) -> Refusal:
        limit, kept = self._policy.max_context_tokens, self._policy.sampling.max_response_tokens
        self._limit = f"context full: a prompt of {found} tokens, max_context_tokens = {limit}"
        return Refusal(
            f"this model's maximum context length is {limit} tokens; the messages have {found}, and {kept} are kept "
            "for the response",
            code="context_length_exceeded",
            param="messages",
        )

    def hear(self, sequence_id: str, response: Response, text: str) -> None:
        """Answer the call that a request was made for.

        Args:
            sequence_id: That of the request.
            response: The response.
            text: Its text without the end token.
        """
        asked = self._asked.pop(sequence_id)
        request, prompt = asked.call.request, asked.prompt
        if asked.call.is_abandoned:
            self._conversations.withdrawn(prompt)
            return
        response, text, is_stopped = self._cut(request, response, text)
        visible = self._opening + (_before(text, request.stops) if is_stopped else text)
        content, calls, could_read = parse_calls(visible, self._policy.spelling.call_form, request.tool_names)
        calls = tuple(replace(one, id=f"c{asked.number:05d}{index:03d}") for index, one in enumerate(calls))
        said = ChatMessage("assistant", content, calls)
        self._conversations.answered(prompt, request.messages, said, response.token_ids)
        is_whole = is_stopped or response.finish_reason == "stop"
        self._turns[asked.number] = _Turn(prompt, response, text, said, is_whole and could_read)
        reason = "tool_calls" if calls else "stop" if is_whole else "length"
        name = f"chatcmpl-{self.episode.trajectory_id}-{asked.number}"
        asked.call.answer(Reply(name, said, reason, len(prompt.ids), len(response.token_ids)))

    def _cut(self, request: ChatRequest, response: Response, text: str) -> tuple[Response, str, bool]:
        """Cut a response where the request wants it; a sampled token more or less is not decided by its text.

        Returns:
            The response, its text, and whether one of the request's stops has ended it.
        """
        ids = response.token_ids
        number = min(len(ids), request.max_tokens or len(ids))
        found = [place for stop in request.stops if (place := text.find(stop)) >= 0]
        if number == len(ids) and not found:
            return response, text, False
        low, high = 1, number
        while found and low < high:  # the fewest tokens whose text has a stop
            middle = (low + high) // 2
            has_stop = any(stop in self._text(ids[:middle]) for stop in request.stops)
            low, high = (low, middle) if has_stop else (middle + 1, high)
        number = high
        if number == len(ids):
            is_stopped = any(stop in text for stop in request.stops)
            return response, text, is_stopped
        kept = self._text(ids[:number])
        is_stopped = any(stop in kept for stop in request.stops)
        reason = "stop" if is_stopped else "length"
        return Response(ids[:number], response.logprobs[:number], reason), kept, is_stopped

    def _text(self, ids: list[int]) -> str:
        answered = [("", Response(ids, [0.0] * len(ids), "length"))]
        return texts_of(self._policy.tokenizer, answered, self._policy.contexts.stop_token_ids)[0]

    def end(self, ended: Ended) -> None:
        """Make the rows, now that the program has ended."""
        facts = {"program": ended.status}
        if ended.status == "done" and self._turns:
            try:
                reward, is_success = reward_of(self._settings, self.task, ended, self._transcript())
            except StarPOError as error:
                self._make_rows(facts)
                self._fail("ProgramRewardFailed", str(error), ended.output)
                return
            self._make_rows(facts)
            self.rows[-1] |= {"action_rewards": [reward], "success": is_success, "terminated": True}
            return
        self._make_rows(facts)
        if ended.status == "done":
            self._fail("ProgramCalledNothing", "it ended without a call that was answered", ended.output)
        elif ended.status == "died" and self._limit == "calls":
            self.rows[-1]["truncated"] = True
        elif ended.status == "died" and self._limit:
            self._add(NO_RESPONSE, status="truncated", truncated=True, info=_as_json({"error": self._limit}))
        else:
            self._fail(_ERRORS.get(ended.status, "ProgramFailed"), ended.detail, ended.output)

    def fail(self, error: str, message: str) -> None:
        """Make the rows of a trajectory whose program could not be started."""
        self._make_rows({})
        self._fail(error, message, "")

    def end_late(self) -> None:
        """Make the rows, because the shard's deadline has passed."""
        self._make_rows({"program": "killed"})
        self._fail("deadline", "the shard's deadline has passed (rollout.deadline_s)", "", status="timeout")

    def _transcript(self) -> list[dict[str, Any]]:
        """Return the messages of all turns, in the order of the calls, each with the number of its conversation."""
        return [
            {**message.as_json(), "conversation": turn.prompt.number}
            for _, turn in sorted(self._turns.items())
            for message in (*turn.prompt.new_messages, turn.said)
        ]

    def _make_rows(self, facts: Mapping[str, Any]) -> None:
        context: list[int] = []
        turns = [turn for _, turn in sorted(self._turns.items())]
        for turn in turns:
            ids = turn.prompt.ids
            grows = bool(context) and ids[: len(context)] == context
            added = ids[len(context) :] if grows else ids
            context = ids + turn.response.token_ids
            self._add(
                self._spoken(turn),
                observation=_observation(turn.prompt.new_messages),
                is_context_start=not grows,
                prompt_ids=added,
                info=_as_json({"conversation": turn.prompt.number, "effective": True}),
            )
        if turns:
            counts = {
                "conversations": len({turn.prompt.number for turn in turns}),
                "context_starts": sum(row["is_context_start"] for row in self.rows),
                "refused": self._num_refused,
            }
            self.rows[-1]["info"] = _as_json(json.loads(self.rows[-1]["info"]) | counts | dict(facts))

    def _spoken(self, turn: _Turn) -> Row:
        think, answer = _parts(turn.text, self._opening)
        calls = [write_call(call.name, json.loads(call.arguments)) for call in turn.said.calls]
        action = "\n".join(calls) or "message"
        return {
            **NO_RESPONSE,
            "response_ids": turn.response.token_ids,
            "behaviour_logprobs": turn.response.logprobs,
            "response": turn.text,
            "finish_reason": turn.response.finish_reason,
            "think": think,
            "answer": answer,
            "parsed_actions": [action],
            "executed_actions": [action],
            "action_rewards": [0.0],
            "action_effective": [True],
            "format_ok": turn.is_well_formed,
            "status": "ok" if turn.is_well_formed else "format_error",
        }

    def _fail(self, error: str, message: str, output: str, status: str = "env_error") -> None:
        facts = {"error": error, "message": without_secrets(message)}
        if output:
            facts["output"] = without_secrets(output[-_MAX_OUTPUT:])
        self._add(NO_RESPONSE, status=status, truncated=status == "timeout", info=_as_json(facts))

    def _add(self, spoken: Row, **columns: Any) -> None:
        episode, turn = self.episode, len(self.rows)
        initial = digest(self.task)
        before = self.rows[-1]["state_digest"] if self.rows else initial
        row: Row = {
            "trajectory_id": episode.trajectory_id,
            "group_id": episode.group_id,
            "env": self._settings.tag_of(episode.env_seed),
            "env_seed": episode.env_seed,
            "dynamics_seed": episode.dynamics_seed,
            "sampling_seed": episode.sampling_seed,
            "member": episode.member,
            "turn": turn,
            "observation": "",
            "is_context_start": turn == 0,
            "action_cost": 0.0,
            "success": False,
            "actions_left": self._settings.max_calls - turn,
            "terminated": False,
            "truncated": False,
            "initial_state_digest": initial,
            **spoken,
            "origin": "greedy" if episode.is_greedy else "policy",
            **columns,
        }
        told = json.dumps([before, row["observation"], row["response"]])
        row["state_digest"] = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
        self.rows.append(row)


def _before(text: str, stops: tuple[str, ...]) -> str:
    """Return the text before the first stop."""
    return text[: min(place for stop in stops if (place := text.find(stop)) >= 0)]


def _parts(text: str, opening: str) -> tuple[str | None, str]:
    """Split a response into its reasoning, if it has some, and the rest; both as they stand in the text."""
    thought, end, rest = text.partition("</think>")
    if not end or not (opening + thought).lstrip().startswith("<think>"):
        return None, text
    return thought.partition("<think>")[2] if "<think>" in thought else thought, rest


def _observation(messages: tuple[ChatMessage, ...]) -> str:
    """Return the text of a message; several, or one of the assistant's, as JSON."""
    if len(messages) == 1 and messages[0].role != "assistant":
        return messages[0].content
    return json.dumps([message.as_json() for message in messages], ensure_ascii=False)


def _as_json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, sort_keys=True)
