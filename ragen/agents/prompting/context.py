"""A trajectory's context as token ids: what the model sees, grown by appending.

    observation -> Context.observe -> prompt ids -> (engine) -> response ids -> Context.respond

Invariant: the ids added by `observe` and the ids handed to `respond`, concatenated since the last context start, are
exactly the ids of the context. Sampled tokens are inserted verbatim; nothing is dropped or tokenised a second time. The
rollout loop ends an episode whose context grows too long; this module never shortens a context.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.earlier import EarlierResponses
from starpo.ragen.agents.prompting.encoding import ChatEncoder, PromptWriter
from starpo.ragen.agents.prompting.forms import in_form
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.agents.prompting.template import ChatPieces, derive_pieces
from starpo.ragen.agents.vision.families import FAMILIES
from starpo.ragen.agents.vision.image import Image, PlacedImage, image_of
from starpo.ragen.agents.vision.image_tokens import MARK, REPLACEMENT, ImageTokens
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import PolicyError, TemplateError
from starpo.ragen.envs.base import Environment
from starpo.ragen.envs.grammar import Grammar, Tool, ToolCalls


@dataclass(frozen=True)
class TurnPrompt:
    """The tokens added before a response.

    Attributes:
        prompt_ids: The added ids; the whole prompt when `is_context_start`. [num_added_tokens]
        is_context_start: Whether they start a new context.
        images: The images among them, by index into `prompt_ids`.
    """

    prompt_ids: list[int]
    is_context_start: bool
    images: tuple[PlacedImage, ...] = ()


@dataclass
class _Turn:
    """A turn in the window: its user message, as the first of a context and as a later one, and the response.

    The messages mark the place of the image, if there is one.
    """

    first_text: str
    later_text: str
    image: Image | None
    response_ids: list[int] | None = None


class ContextBuilder:
    """Starts contexts for one tokenizer and one prompt configuration. May be shared between threads.

    Attributes:
        pieces: The template's pieces without tools.
        stop_token_ids: The tokens that end an assistant message; the template's own first.
        earlier: Repeats earlier responses in later prompts, without tools.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, agent: AgentConfig, max_response_tokens: int) -> None:
        """Derive the template's pieces.

        Raises:
            TemplateError: If turns cannot be appended to the tokenizer's chat template.
            PolicyError: If prompts contain images and the policy sees none.
        """
        self.agent = agent
        self.image_tokens: ImageTokens | None = getattr(tokenizer, "image_tokens", None)
        if agent.shows_images and self.image_tokens is None:
            raise PolicyError(
                f"agent.observation = '{agent.observation}' shows images, and the policy '{tokenizer.name_or_path}' "
                f"sees none, or is of a family that is not supported ({', '.join(FAMILIES)}): set policy.type = 'tiny' "
                "with policy.patch_size, or agent.observation = 'text'"
            )
        self.prompt = in_form(prompt_of(agent), agent)
        self.max_response_tokens = max_response_tokens
        self._tokenizer = tokenizer
        self.pieces = derive_pieces(tokenizer, agent)
        self.stop_token_ids = self.pieces.stop_token_ids
        self.earlier = EarlierResponses(tokenizer, self.pieces, agent)
        self._with_tools: dict[tuple[Tool, ...], tuple[ChatPieces, EarlierResponses]] = {
            (): (self.pieces, self.earlier)
        }

    @property
    def encoder(self) -> ChatEncoder:
        """Encodes prompts."""
        return self.pieces.encoder

    def start(self, environment: Environment) -> "Context":
        """Start the context of an episode; call after the environment's reset."""
        grammar = environment.grammar
        rules = environment.picture_rules() if self.agent.observation == "image" else environment.rules()
        introduction = self.prompt.introduction(rules, grammar, self.agent)
        if self.agent.shows_images:
            introduction = introduction.replace(MARK, REPLACEMENT)
        return Context(self, introduction, grammar)

    def with_tools(self, tools: tuple[Tool, ...]) -> tuple[ChatPieces, EarlierResponses]:
        """Return the template's pieces with these tools declared, and what repeats earlier responses then.

        Raises:
            TemplateError: If turns cannot be appended to the tokenizer's chat template.
        """
        if tools not in self._with_tools:
            pieces = derive_pieces(self._tokenizer, self.agent, tools, self.encoder)
            self._with_tools[tools] = pieces, EarlierResponses(self._tokenizer, pieces, self.agent)
        return self._with_tools[tools]

    def look(self, environment: Environment) -> Image | None:
        """Return the image that the prompt shows of the environment's state; None if it shows none.

        Raises:
            EnvironmentFault: If the environment draws none.
            PolicyError: If the policy cannot see images of this size.
        """
        if not self.agent.shows_images:
            return None
        image = image_of(environment)
        assert self.image_tokens is not None
        self.image_tokens.num_tokens(image)
        return image

    def describe(self, image: Image | None) -> str:
        """Say how many tokens an image takes; empty without one."""
        if image is None:
            return ""
        assert self.image_tokens is not None
        return self.image_tokens.describe(image)

    def response_ids(self, text: str) -> list[int]:
        """Return the ids of a response that nobody sampled, such as a demonstrated one, without an end token.

        They are those that the template's rendering has, with the white space that it puts around a response.
        """
        text = text.join(self.pieces.margins)
        prompt_ids = self.encoder.encode(self.earlier.generation)
        ids = self.encoder.encode(self.earlier.generation + text)
        if ids[: len(prompt_ids)] == prompt_ids:
            return ids[len(prompt_ids) :]
        return self.encoder.encode(text)  # it begins with white space, which the tokenizer joins with the prompt's

    def add_message(self, writer: PromptWriter, text: str, image: Image | None) -> list[PlacedImage]:
        """Append a user message to a prompt; the image, if any, takes the place of its mark in the text.

        Returns:
            The image with its place in the prompt; empty without one.

        Raises:
            TemplateError: If the text does not mark the place of the image exactly once.
        """
        text = text.strip() if self.pieces.trims_users else text
        if image is None:
            writer.message(text)
            return []
        before, *after = text.split(MARK)
        if len(after) != 1:
            raise TemplateError(
                f"prompt '{self.agent.prompt}' shows the observation {len(after)} times; with agent.observation = "
                f"'{self.agent.observation}' it must show it once, as it is"
            )
        writer.message(before)
        placed = self.add_image(writer, image)
        writer.message(after[0])
        return [placed]

    def add_image(self, writer: PromptWriter, image: Image) -> PlacedImage:
        """Append the tokens of an image to a prompt, and return it with its place there.

        Raises:
            PolicyError: If the policy cannot see images of this size.
        """
        tokens = self.image_tokens
        assert tokens is not None
        num_tokens = tokens.num_tokens(image)
        start = writer.tokens(tokens.ids(image))
        return PlacedImage(start + len(tokens.before_ids), num_tokens, image)


class Context:
    """The context of one trajectory. Calls alternate: observe, respond, observe, ..."""

    def __init__(self, builder: ContextBuilder, introduction_text: str, grammar: Grammar) -> None:
        self._builder = builder
        self._introduction = introduction_text
        self._grammar = grammar
        self._pieces, self._earlier = builder.with_tools(grammar.tools if isinstance(grammar, ToolCalls) else ())
        agent = builder.agent
        must_hold_all = agent.context == "full" and not self._pieces.shown.is_verbatim
        num_in_sight = None if must_hold_all else agent.window_turns
        self._turns: deque[_Turn] = deque(maxlen=num_in_sight)  # if the context grows, the last turn is enough
        self._num_turns = 0
        self._token_ids: list[int] = []
        self._images: list[PlacedImage] = []
        self._user_texts: list[str] = []

    def copy(self) -> "Context":
        """Return an independent copy, to be continued differently."""
        copy = Context(self._builder, self._introduction, self._grammar)
        copy._turns.extend(replace(turn) for turn in self._turns)
        copy._num_turns = self._num_turns
        copy._token_ids, copy._user_texts, copy._images = self.token_ids, self.user_texts, list(self._images)
        return copy

    @property
    def token_ids(self) -> list[int]:
        """Copy of the context since its last start, as the model sees it. [num_tokens]"""
        return list(self._token_ids)

    @property
    def images(self) -> tuple[PlacedImage, ...]:
        """Images of the context since its last start, by index into `token_ids`."""
        return tuple(self._images)

    @property
    def user_texts(self) -> list[str]:
        """User messages of the context since its last start, for servers that apply the chat template themselves."""
        return list(self._user_texts)

    def observe(
        self,
        observation: str,
        *,
        actions_left: int,
        reward: float | None,
        had_invalid_action: bool,
        image: Image | None = None,
    ) -> TurnPrompt:
        """Append the tokens before the next response.

        A new context starts in the first turn and, with context = 'window', in every turn: the introduction, then the
        last `window_turns` - 1 turns with their responses verbatim, then this turn. The first turn in the window shows
        no reward, since the turn that earned it is outside the window. A new context, with all turns that `context`
        allows, also starts where the template shows the response before otherwise than it was sampled: in every turn
        if it drops reasoning.

        Args:
            observation: Observation from the environment.
            actions_left: Number of actions that may still be taken.
            reward: The environment's reward of the previous turn; None in the first turn.
            had_invalid_action: Whether the previous response was malformed.
            image: The state's image, from `ContextBuilder.look`.

        Raises:
            TemplateError: If the prompt does not show the observation exactly once, and there is an image.
        """
        builder, pieces, earlier = self._builder, self._pieces, self._earlier
        assert not self._turns or self._turns[-1].response_ids is not None, "observe was called twice without respond"
        before_ids = self._turns[-1].response_ids if self._turns else None
        self._turns.append(self._turn(observation, actions_left, reward, had_invalid_action, image))
        self._num_turns += 1

        if before_ids is not None and builder.agent.context == "full" and earlier.continues(before_ids):
            writer = builder.encoder.writer(before_ids[-1] if before_ids else None)
            writer.template(pieces.continuation)
            placed = builder.add_message(writer, self._turns[-1].later_text, image)
            writer.template(earlier.generation)
            added, start = writer.finish(), len(self._token_ids)
            self._images += [replace(one, position=start + one.position) for one in placed]
            self._token_ids += added
            self._user_texts.append(self._turns[-1].later_text)
            return TurnPrompt(added, is_context_start=False, images=tuple(placed))

        writer = builder.encoder.writer(is_first=True)
        writer.template(pieces.opening)
        placed = builder.add_message(writer, self._turns[0].first_text, self._turns[0].image)
        for before, turn in pairwise(self._turns):
            assert before.response_ids is not None
            earlier.write(writer, before.response_ids)
            placed += builder.add_message(writer, turn.later_text, turn.image)
        writer.template(earlier.generation)
        added = writer.finish()
        self._token_ids = list(added)
        self._images = placed
        self._user_texts = [self._turns[0].first_text, *(turn.later_text for turn in islice(self._turns, 1, None))]
        return TurnPrompt(added, is_context_start=True, images=tuple(placed))

    def respond(self, response_ids: Sequence[int]) -> None:
        """Append the sampled tokens verbatim, including the end token if there is one. [num_response_tokens]"""
        assert self._turns, "respond was called before observe"
        assert self._turns[-1].response_ids is None, "respond was called twice without observe"
        self._turns[-1].response_ids = list(response_ids)
        self._token_ids += response_ids

    def _turn(
        self,
        observation: str,
        actions_left: int,
        reward: float | None,
        had_invalid_action: bool,
        image: Image | None,
    ) -> _Turn:
        agent = self._builder.agent
        if image is not None:
            text = "" if agent.observation == "image" else "\n" + observation.replace(MARK, REPLACEMENT)
            observation = MARK + text
        message, message_with_reward = (
            self._builder.prompt.turn_message(
                observation,
                turn=self._num_turns,
                actions_left=actions_left,
                reward=shown,
                had_invalid_action=had_invalid_action,
                agent=agent,
                grammar=self._grammar,
                max_response_tokens=self._builder.max_response_tokens,
            )
            for shown in (None, reward if agent.should_show_reward else None)
        )
        first_text = f"{self._introduction}\n\n{message}" if self._introduction else message
        if isinstance(self._grammar, ToolCalls):
            message_with_reward = f"<tool_response>\n{message_with_reward}\n</tool_response>"
        return _Turn(first_text, message_with_reward, image)
