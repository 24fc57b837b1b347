"""The conversations of one trajectory as token ids: token in, token out across somebody else's text.

    request -> `Conversations.prompt` -> Prompt: ids of the context -> (engine) -> `answered` -> known for the next one

A request whose messages begin with those of a response that was given here, that response as it was returned, continues
from the ids of that response: sampled tokens are never tokenised again. Anything else (a rewritten history, another
agent of the same program) begins a new context, spelled out from its text. A request may also continue from an earlier
response than the last one of its conversation: the conversation then branches. The instruction for a required form is
part of a context, and no part of the messages by which conversations are recognised.
"""

from dataclasses import dataclass, replace

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.methods.programs.chat import ChatMessage, ChatRequest, instructed
from starpo.ragen.methods.programs.spelling import Spelling


@dataclass(frozen=True, eq=False)
class Heard:
    """A response that was given.

    Attributes:
        prompt: Its prompt.
        message: The response as it was returned to the program.
        shown: The response as the model said it, reasoning included.
        ids: As sampled. [num_response_tokens]
    """

    prompt: "ConversationPrompt"
    message: ChatMessage
    shown: ChatMessage
    ids: list[int]


@dataclass(frozen=True, eq=False)
class ConversationPrompt:
    """The context of a request.

    Attributes:
        messages: The messages of the request.
        shown: The same as the model sees them: with the instructions for a required form, and all reasoning.
        tools: Its tools.
        follows: The response that it continues; None if its context is new.
        ids: Up to the beginning of the response. [num_prompt_tokens]
        images: The images among them, by index.
        number: Index of its conversation in the trajectory.
    """

    messages: tuple[ChatMessage, ...]
    shown: tuple[ChatMessage, ...]
    tools: str
    follows: Heard | None
    ids: list[int]
    images: tuple[PlacedImage, ...]
    number: int

    @property
    def new_messages(self) -> tuple[ChatMessage, ...]:
        """The messages that the conversation did not have before, as the model sees them."""
        return self.shown[len(self.follows.prompt.shown) + 1 if self.follows else 0 :]


class Conversations:
    """All conversations of a trajectory."""

    def __init__(self, spelling: Spelling, keeps_thoughts: bool) -> None:
        """Start without any. Without `keeps_thoughts`, the template drops reasoning once a user writes, and contexts
        that a message of a user goes on are new."""
        self._spelling = spelling
        self._keeps_thoughts = keeps_thoughts
        self._heard: dict[tuple[str, tuple[ChatMessage, ...]], Heard] = {}  # by tools and messages, its own the last
        self._last: list[Heard | None] = []  # of each conversation; None while a response is being sampled

    def prompt(self, request: ChatRequest) -> ConversationPrompt:
        """Return the context of a request; `answered` or `withdrawn` must follow before the conversation goes on.

        Raises:
            Refusal: If the chat template does not take its messages, or the policy its images.
        """
        messages, tools, instruction = request.messages, request.tools, request.requirement.instruction
        num_known = max((number for number, one in enumerate(messages, 1) if one.role == "assistant"), default=0)
        known, new = self._heard.get((tools, messages[:num_known])), messages[num_known:]
        before: list[int] = []
        images: tuple[PlacedImage, ...] = ()
        if known is None or not new:
            known, shown = None, instructed(messages, instruction)
            added = self._spelling.opening(shown, tools)
        else:
            before, images, new = known.prompt.ids + known.ids, known.prompt.images, instructed(new, instruction)
            shown = (*known.prompt.shown, known.shown, *new)
            added = self._spelling.continuation(before[-1], bool(known.message.calls), new, tools)
            if not self._spelling.is_verbatim:
                whole = self._spelling.opening(shown, tools)
                may_go_on = self._keeps_thoughts or all(message.role == "tool" for message in new)
                ids = before + added.prompt_ids
                if not (may_go_on and self._spelling.shows_as_sampled(ids, whole.prompt_ids)):
                    known, before, images, added = None, [], (), whole
        placed = (replace(one, position=len(before) + one.position) for one in added.images)
        number = known.prompt.number if known else -1
        if known is None or self._last[number] is not known:  # another request already goes on from there
            number = len(self._last)
            self._last.append(None)
        self._last[number] = None
        return ConversationPrompt(messages, shown, tools, known, before + added.prompt_ids, (*images, *placed), number)

    def answered(
        self,
        prompt: ConversationPrompt,
        message: ChatMessage,
        response_ids: list[int],
        shown: ChatMessage | None = None,
    ) -> None:
        """Record the response to a prompt.

        Args:
            prompt: The prompt.
            message: The response as it is returned to the program.
            response_ids: As it was sampled. [num_response_tokens]
            shown: As the model said it, if that is more than is returned.
        """
        heard = self._last[prompt.number] = Heard(prompt, message, shown or message, response_ids)
        place = prompt.tools, (*prompt.messages, message)
        self._heard[place] = min(heard, self._heard.get(place, heard), key=lambda one: one.prompt.number)

    def withdrawn(self, prompt: ConversationPrompt) -> None:
        """Record that a prompt will get no response."""
        self._last[prompt.number] = prompt.follows
