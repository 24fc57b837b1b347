"""Earlier responses as a context repeats them: as they were sampled, or as the template shows them."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.encoding import PromptWriter
from starpo.ragen.agents.prompting.parser import prefilled_tag
from starpo.ragen.agents.prompting.template import ChatPieces
from starpo.ragen.config.agent import AgentConfig


@dataclass(frozen=True)
class EarlierResponse:
    """A response as later prompts repeat it.

    Attributes:
        before_ids: Ids between its user message and the response.
        said_ids: Ids of the response's content.
        after_ids: Ids between the response and the next user message.
    """

    before_ids: list[int]
    said_ids: list[int]
    after_ids: list[int]

    @property
    def token_ids(self) -> list[int]:
        """All three parts, concatenated."""
        return [*self.before_ids, *self.said_ids, *self.after_ids]


class EarlierResponses:
    """Repeats responses for one tokenizer, one template and one prompt configuration.

    Attributes:
        generation: Text between the last user message and the response to be generated.
        generation_ids: Its ids, alone.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pieces: ChatPieces, agent: AgentConfig) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self._shown = pieces.shown
        tag = "" if pieces.opens_thought else prefilled_tag(agent)
        self._opening = pieces.opened_thought or tag
        self.generation = pieces.generation + tag
        self.generation_ids = pieces.encoder.encode(self.generation)

    def continues(self, response_ids: Sequence[int]) -> bool:
        """Whether the template shows a response as it was sampled, so that the context goes on from it.

        Never where the template drops reasoning: there each turn is a context of its own, whatever the response has.
        """
        if self._shown.is_verbatim or self._shown.drops_thoughts:
            return self._shown.is_verbatim
        text = self._text(response_ids)
        return self._shown.text(text) == self.generation.removesuffix(self._opening) + text

    def write(self, writer: PromptWriter, response_ids: Sequence[int]) -> None:
        """Append what later prompts show between the user messages before and after a response.

        Args:
            writer: What is appended to.
            response_ids: As sampled, including the end token if there is one.
        """
        if self._shown.is_verbatim:
            writer.template(self.generation)
            writer.tokens(response_ids)
        else:
            for piece in self._shown.pieces(self._text(response_ids)):
                (writer.template if piece.is_template else writer.message)(piece.text)
        writer.template(self._pieces.continuation)

    def repeat(self, response_ids: list[int]) -> EarlierResponse:
        """Return the ids of the same in three parts.

        Args:
            response_ids: As sampled, including the end token if there is one.
        """
        if self._shown.is_verbatim:
            return EarlierResponse(self.generation_ids, response_ids, self._pieces.after_response(response_ids))
        encoder, before, after = self._pieces.encoder, self._pieces.earlier_ids, self._pieces.continuation_ids
        writer = encoder.writer()
        self.write(writer, response_ids)
        ids = writer.finish()
        return EarlierResponse(list(before), ids[len(before) : len(ids) - len(after)], list(after))

    def _text(self, response_ids: Sequence[int]) -> str:
        """Return a response as text without its end token, with what the prompt opened of it."""
        is_ended = bool(response_ids) and response_ids[-1] in self._pieces.stop_token_ids
        spoken = list(response_ids[:-1] if is_ended else response_ids)
        text = self._tokenizer.decode(spoken, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return self._opening + str(text)
