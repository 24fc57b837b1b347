"""Earlier responses as a context repeats them: verbatim, or without their reasoning."""

from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

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
        generation_ids: Ids between the last user message and the response to be generated.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pieces: ChatPieces, agent: AgentConfig) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self._drops_thoughts = agent.earlier_thoughts == "dropped"
        self._opening_tag = prefilled_tag(agent)
        tag = "" if pieces.opens_thought else self._opening_tag
        self.generation_ids = [*pieces.generation_ids, *tokenizer.encode(tag, add_special_tokens=False)]

    def repeat(self, response_ids: list[int]) -> EarlierResponse:
        """Return a response as later prompts repeat it.

        Args:
            response_ids: As sampled, including the end token if there is one.
        """
        if not self._drops_thoughts:
            return EarlierResponse(self.generation_ids, response_ids, self._pieces.after_response(response_ids))
        is_ended = bool(response_ids) and response_ids[-1] in self._pieces.stop_token_ids
        spoken = response_ids[:-1] if is_ended else response_ids
        text = str(self._tokenizer.decode(spoken, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        said = self._tokenizer.encode(
            self._pieces.without_thought(self._opening_tag + text), add_special_tokens=False, split_special_tokens=True
        )
        return EarlierResponse(list(self._pieces.earlier_ids), said, list(self._pieces.continuation_ids))
