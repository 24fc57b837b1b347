"""Whether prompts and responses fit into the context, before any work.

settings, the policy's tokenizer -> first prompts of every environment that is played -> ContextFit
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from starpo.ragen.agents.prompting.lengths import PromptLengths, num_in_sight, prompt_lengths
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.model_files import model_place
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.counts import counted
from starpo.ragen.core.visible import visible
from starpo.ragen.envs.make import environment_type

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from starpo.ragen.agents.policy.tokenizer import ExtraVocabulary


@dataclass(frozen=True)
class ContextFit:
    """Prompts of one environment, and the limits that they have to fit into.

    Attributes:
        place: The setting with the environment, and its part if it has several: 'environment', 'environment, size-3'.
        kind: Type of the environment.
        lengths: Lengths of its prompts.
        agent: Settings of the agent.
        rollout: Settings with the limits of response and context.
        positions: Maximum context length of the model, in tokens; None if its configuration does not state it.
    """

    place: str
    kind: str
    lengths: PromptLengths
    agent: AgentConfig
    rollout: RolloutConfig
    positions: int | None

    @property
    def num_needed(self) -> int:
        """Tokens of the longest context of an episode, all responses of maximum length."""
        return self.lengths.needed(self.agent, self.rollout.max_response_tokens, self.agent.max_turns)

    @property
    def num_turns(self) -> int:
        """Number of turns that surely fit into `rollout.max_context_tokens`."""
        limit = self.rollout.max_context_tokens
        return self.lengths.num_turns_within(self.agent, self.rollout.max_response_tokens, limit)

    @property
    def first_prompts(self) -> str:
        """The lengths of the first prompts, as the beginning of a sentence."""
        shortest, longest = self.lengths.shortest, self.lengths.longest
        lengths = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        image = f" ({self.lengths.image})" if self.lengths.image else ""
        return f"{self.place}: first prompts of {lengths} tokens{image}"

    @property
    def summary(self) -> str:
        """Lengths and limits in a line."""
        responses = counted(num_in_sight(self.agent, self.agent.max_turns), "response")
        positions = "" if self.positions is None else f"; the model has {self.positions:,} positions"
        return (
            f"{self.first_prompts}; with {responses} of {self.rollout.max_response_tokens:,} at most "
            f"{self.num_needed:,}, where {self.rollout.max_context_tokens:,} are allowed{positions}"
        )

    @property
    def misfit(self) -> str | None:
        """Why no episode can be played, or one may end the run: a sentence that says what to set. None otherwise."""
        rollout, limit = self.rollout, self.rollout.max_context_tokens
        response = f"rollout.max_response_tokens = {rollout.max_response_tokens:,}"
        least = self.lengths.longest + rollout.max_response_tokens
        if self.positions is not None and least > self.positions:
            room = self.positions - self.lengths.longest
            return (
                f"{self.first_prompts} and {response} do not fit into the {self.positions:,} positions of the model: "
                + (f"set that to at most {room:,}, or " if room > 0 else "")
                + "take a model with a longer context, or a shorter prompt (agent.prompt, docs/prompts.md)"
            )
        if self.lengths.shortest + rollout.max_response_tokens > limit:
            return (
                f"{self.first_prompts} and {response} do not fit into rollout.max_context_tokens = {limit:,}: set "
                f"rollout.max_context_tokens = {self.within_positions(self.num_needed):,}, or lower "
                "rollout.max_response_tokens"
            )
        if self.positions is not None and min(limit, self.num_needed) > self.positions:
            return (
                f"{self.first_prompts}, and {counted(self.agent.max_turns, 'turn')} may need {self.num_needed:,}, but "
                f"the model has {self.positions:,} positions: set rollout.max_context_tokens = {self.positions:,} at "
                "most, or agent.context = 'window', where a turn sees only the last ones"
            )
        return None

    @property
    def is_program(self) -> bool:
        """Whether a program plays: then its prompts, and how many responses it asks for, are its own."""
        return bool(environment_type(self.kind).plays)

    @property
    def shortage(self) -> str | None:
        """What to set so that all turns have room; None if they have, or if a program plays."""
        if self.is_program or self.num_turns == self.agent.max_turns:
            return None
        wanted = self.within_positions(self.num_needed)
        return (
            f"{self.place}: only {self.num_turns} of {counted(self.agent.max_turns, 'turn')} surely fit into "
            f"rollout.max_context_tokens = {self.rollout.max_context_tokens:,}; episodes that need more end as "
            f"'truncated': --set rollout.max_context_tokens={wanted}"
            + ("" if wanted == self.num_needed else " (all that the model has), or --set agent.context=window")
        )

    def within_positions(self, num_tokens: int) -> int:
        """Return a number of tokens, or the model's positions if those are fewer."""
        return num_tokens if self.positions is None else min(num_tokens, self.positions)


def context_fits(config: StarPOConfig, *, should_download: bool = False) -> list[ContextFit]:
    """Measure the prompts of every environment that a run plays; empty if the model is not on this machine.

    Args:
        config: Settings of the run.
        should_download: Download a model from the hub.

    Raises:
        StarPOError: If policy, tokenizer, template or prompt cannot be used.
        Exception: Whatever an environment raises.
    """
    loaded = tokenizer_and_positions(config, should_download=should_download)
    if loaded is None:
        return []
    from starpo.ragen.agents.prompting.context import ContextBuilder

    tokenizer, positions = loaded
    contexts = ContextBuilder(tokenizer, config.agent, config.rollout.max_response_tokens)
    places = {"environment": config.environment}
    places |= {f"evaluation.variants.{name}": settings for name, settings in config.evaluation.variants.items()}
    return [
        ContextFit(place, part.type, prompt_lengths(part, contexts), config.agent, config.rollout, positions)
        for setting, parts in ((place, settings.tagged()) for place, settings in places.items())
        for place, part in ((f"{setting}, {tag}" if len(parts) > 1 else setting, part) for tag, part in parts.items())
    ]


def worst_misfit(fits: Sequence[ContextFit]) -> str | None:
    """Return the misfit of the longest prompts, as what makes room for them does for all; None if all fit."""
    misfits = [(fit.lengths.longest, fit.misfit) for fit in fits if fit.misfit is not None]
    return max(misfits, default=(0, None))[1]


def template_lines(config: StarPOConfig) -> list[str]:
    """Say where responses end, and which system prompt is sent; for a model that is on this machine.

    Raises:
        StarPOError: If policy, tokenizer or template cannot be used.
    """
    from starpo.ragen.agents.prompting.template import derive_pieces

    loaded = tokenizer_and_positions(config)
    assert loaded is not None, "the model is on this machine"
    pieces = derive_pieces(loaded[0], config.agent)
    ends = ", ".join(f"{end.text} ({end.source})" for end in pieces.ends)
    lines = [f"a response ends with {ends}"]
    if pieces.inserted_system_prompt:
        lines.append(
            f"system prompt, inserted by the chat template: {visible(pieces.inserted_system_prompt)!r}. Set your own "
            "(agent.system_prompt), or an empty one (agent.template_system_prompt = 'empty')"
        )
    return lines


def tokenizer_and_positions(
    config: StarPOConfig, *, should_download: bool = False
) -> tuple["PreTrainedTokenizerBase", int | None] | None:
    """Return the policy's tokenizer and its maximum context; None if the model is not on this machine.

    Raises:
        StarPOError: If there is no such model, or its tokenizer cannot be read.
    """
    policy = config.policy
    if isinstance(policy, TinyPolicy):
        return tiny_tokenizer(config), policy.max_positions
    if model_place(policy.name_or_path) is None and not should_download:
        return None
    from starpo.ragen.agents.policy.folder import num_positions
    from starpo.ragen.agents.policy.load import load_tokenizer
    from starpo.ragen.agents.policy.source import resolve_policy

    folder = resolve_policy(policy)
    return load_tokenizer(folder), num_positions(folder)


def tiny_tokenizer(config: StarPOConfig) -> "PreTrainedTokenizerBase":
    """Return the tokenizer of the embedded policy of these settings.

    Raises:
        ConfigError: If the policy has nobody to imitate in the environment.
    """
    from starpo.ragen.agents.policy.tokenizer import extra_vocabulary

    policy = config.policy
    assert isinstance(policy, TinyPolicy)
    return _tokenizer(extra_vocabulary(policy, config.environment, config.agent.form), policy.patch_size)


@cache
def _tokenizer(extra: "ExtraVocabulary | None", patch_size: int | None) -> "PreTrainedTokenizerBase":
    from starpo.ragen.agents.policy.tokenizer import make_tokenizer

    return make_tokenizer(extra, patch_size)
