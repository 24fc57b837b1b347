"""The conversations of one trajectory as token ids: token in, token out across somebody else's text.

    request -> `Conversations.prompt` -> Prompt: ids of the context -> (engine) -> `answered` -> known for the next one

A request whose messages begin with those of a response that was given here, that response as it was returned, continues
from the ids of that response: sampled tokens are never tokenised again. Anything else (a rewritten history, another
agent of the same program) begins a new context, spelled out from its text. A request may also continue from an earlier
response than the last one of its conversation: the conversation then branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.methods.programs.chat import ChatMessage, ChatRequest
from starpo.ragen.methods.programs.spelling import Spelling


@dataclass
class _Conversation:
    """A conversation up to its last response.

    Attributes:
        number: Its index in the trajectory.
        tools: The tools that it was begun with.
        messages: Up to and with the last response, as it was returned.
        ids: The context. [num_tokens]
        images: Its images, by index into `ids`.
        ends: For every response, the numbers of messages and of ids up to and with it.
        is_asking: Whether a response is being sampled.
    """

    number: int
    tools: str
    messages: list[ChatMessage] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    images: tuple[PlacedImage, ...] = ()
    ends: list[tuple[int, int]] = field(default_factory=list)
    is_asking: bool = False


@dataclass(frozen=True)
class Prompt:
    """The context of a request.

    Attributes:
        ids: Up to the beginning of the response. [num_prompt_tokens]
        images: The images among them, by index.
        new_messages: The messages that the conversation did not have before.
        number: Index of the conversation in the trajectory.
    """

    ids: list[int]
    images: tuple[PlacedImage, ...]
    new_messages: tuple[ChatMessage, ...]
    number: int


class Conversations:
    """All conversations of a trajectory."""

    def __init__(self, spelling: Spelling, keeps_thoughts: bool) -> None:
        """Start without any; without `keeps_thoughts`, the template rewrites responses, and every context is new."""
        self._spelling = spelling
        self._keeps_thoughts = keeps_thoughts
        self._all: list[_Conversation] = []

    def prompt(self, request: ChatRequest) -> Prompt:
        """Return the context of a request; `answered` or `withdrawn` must follow before the conversation goes on.

        Raises:
            Refusal: If the chat template does not take its messages, or the policy its images.
        """
        known, num_messages, num_ids = self._longest_match(request)
        new = request.messages[num_messages:]
        if known is None:
            added = self._spelling.opening(request.messages, request.tools)
        else:
            has_called = bool(known.messages[num_messages - 1].calls)
            added = self._spelling.continuation(known.ids[num_ids - 1], has_called, new, request.tools)
        if known is None or known.is_asking or num_messages < len(known.messages):
            known = self._branch(known, num_messages, num_ids, request.tools)
        known.is_asking = True
        images = (replace(one, position=num_ids + one.position) for one in added.images)
        return Prompt(known.ids + added.prompt_ids, (*known.images, *images), new, known.number)

    def answered(
        self, prompt: Prompt, messages: Sequence[ChatMessage], said: ChatMessage, response_ids: list[int]
    ) -> None:
        """Record the response to a prompt.

        Args:
            prompt: The prompt.
            messages: All messages of its request.
            said: The response as it is returned to the program.
            response_ids: As sampled.
        """
        known = self._all[prompt.number]
        known.is_asking = False
        known.messages = [*messages, said]
        known.ids, known.images = prompt.ids + response_ids, prompt.images
        known.ends.append((len(known.messages), len(known.ids)))

    def withdrawn(self, prompt: Prompt) -> None:
        """Record that a prompt will get no response."""
        self._all[prompt.number].is_asking = False

    def _longest_match(self, request: ChatRequest) -> tuple[_Conversation | None, int, int]:
        """Return the conversation, and the numbers of its messages and ids, that a request continues."""
        best: tuple[_Conversation | None, int, int] = (None, 0, 0)
        if not self._keeps_thoughts:
            return best
        for known in self._all:
            if known.tools != request.tools:
                continue
            for num_messages, num_ids in reversed(known.ends):
                if num_messages <= best[1]:
                    break
                if _continues(request.messages, known.messages, num_messages):
                    best = (known, num_messages, num_ids)
                    break
        return best

    def _branch(self, known: _Conversation | None, num_messages: int, num_ids: int, tools: str) -> _Conversation:
        """Begin a conversation with what another one has up to a response."""
        new = _Conversation(len(self._all), tools)
        if known is not None:
            new.messages, new.ids = known.messages[:num_messages], known.ids[:num_ids]
            new.images = tuple(one for one in known.images if one.position < num_ids)
            new.ends = [end for end in known.ends if end[0] <= num_messages]
        self._all.append(new)
        return new


def _continues(messages: Sequence[ChatMessage], known: Sequence[ChatMessage], number: int) -> bool:
    """Whether messages are the first `number` known ones, then others, none of them the assistant's."""
    if len(messages) <= number or any(message.role == "assistant" for message in messages[number:]):
        return False
    return list(messages[:number]) == list(known[:number])
