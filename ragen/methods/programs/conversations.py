"""The conversations of one trajectory as token ids: token in, token out across somebody else's text.

    request -> `Conversations.prompt` -> Prompt: ids of the context -> (engine) -> `answered` -> known for the next one

A request whose messages begin with those of a response that was given here, that response as it was returned, continues
from the ids of that response: sampled tokens are never tokenised again. Anything else (a rewritten history, another
agent of the same program) begins a new context, spelled out from its text. A request may also continue from an earlier
response than the last one of its conversation: the conversation then branches.
"""

from dataclasses import dataclass, replace

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.methods.programs.chat import ChatMessage, ChatRequest
from starpo.ragen.methods.programs.spelling import Spelling


@dataclass(frozen=True, eq=False)
class Heard:
    """A response that was given.

    Attributes:
        prompt: Its prompt.
        said: The response as it was returned to the program.
        ids: As sampled. [num_response_tokens]
    """

    prompt: "Prompt"
    said: ChatMessage
    ids: list[int]


@dataclass(frozen=True, eq=False)
class Prompt:
    """The context of a request.

    Attributes:
        messages: The messages of the request.
        tools: Its tools.
        follows: The response that it continues; None if its context is new.
        ids: Up to the beginning of the response. [num_prompt_tokens]
        images: The images among them, by index.
        number: Index of its conversation in the trajectory.
    """

    messages: tuple[ChatMessage, ...]
    tools: str
    follows: Heard | None
    ids: list[int]
    images: tuple[PlacedImage, ...]
    number: int

    @property
    def new_messages(self) -> tuple[ChatMessage, ...]:
        """The messages that the conversation did not have before."""
        return self.messages[len(self.follows.prompt.messages) + 1 if self.follows else 0 :]


class Conversations:
    """All conversations of a trajectory."""

    def __init__(self, spelling: Spelling, keeps_thoughts: bool) -> None:
        """Start without any. Without `keeps_thoughts`, the template drops reasoning once a user writes, and contexts
        that a message of a user goes on are new."""
        self._spelling = spelling
        self._keeps_thoughts = keeps_thoughts
        self._heard: dict[tuple[str, tuple[ChatMessage, ...]], Heard] = {}  # by tools and messages, its own the last
        self._last: list[Heard | None] = []  # of each conversation; None while a response is being sampled

    def prompt(self, request: ChatRequest) -> Prompt:
        """Return the context of a request; `answered` or `withdrawn` must follow before the conversation goes on.

        Raises:
            Refusal: If the chat template does not take its messages, or the policy its images.
        """
        messages, tools = request.messages, request.tools
        said = [number for number, message in enumerate(messages, 1) if message.role == "assistant"]
        known, new = self._heard.get((tools, messages[: max(said, default=0)])), messages[max(said, default=0) :]
        before: list[int] = []
        shown: tuple[PlacedImage, ...] = ()
        if known is None or not new:
            known, added = None, self._spelling.opening(messages, tools)
        else:
            before, shown = known.prompt.ids + known.ids, known.prompt.images
            added = self._spelling.continuation(before[-1], bool(known.said.calls), new, tools)
            if not self._spelling.is_verbatim:
                whole = self._spelling.opening(messages, tools)
                may_go_on = self._keeps_thoughts or all(message.role == "tool" for message in new)
                ids = before + added.prompt_ids
                if not (may_go_on and self._spelling.shows_as_sampled(ids, whole.prompt_ids)):
                    known, before, shown, added = None, [], (), whole
        images = (replace(one, position=len(before) + one.position) for one in added.images)
        number = known.prompt.number if known else -1
        if known is None or self._last[number] is not known:  # another request already goes on from there
            number = len(self._last)
            self._last.append(None)
        self._last[number] = None
        return Prompt(messages, tools, known, before + added.prompt_ids, (*shown, *images), number)

    def answered(self, prompt: Prompt, said: ChatMessage, response_ids: list[int]) -> None:
        """Record the response to a prompt, as it is returned to the program and as it was sampled."""
        heard = self._last[prompt.number] = Heard(prompt, said, response_ids)
        place = prompt.tools, (*prompt.messages, said)
        self._heard[place] = min(heard, self._heard.get(place, heard), key=lambda one: one.prompt.number)

    def withdrawn(self, prompt: Prompt) -> None:
        """Record that a prompt will get no response."""
        self._last[prompt.number] = prompt.follows
