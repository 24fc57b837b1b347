"""`make_tokenizer`: a small byte-level BPE for the language of the environments and their demonstrators.

A small number of tokens per turn makes the embedded policy fast: a map row, a word, ` ||` and a digit with its leading
space are one token each, so a turn of the 'state' prompt is about 24 tokens and a response about 17. Every byte is in
the vocabulary, so any text can be encoded and decodes back exactly; text outside the environments' language takes one
token per byte.

    observations, thoughts, actions --cut into pieces--> vocabulary = bytes + pieces + format tags + turn tokens
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from starpo.ragen.config.agent import FORMS
from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.limits import environment_call
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import DEMONSTRATORS, VOCABULARY
from starpo.ragen.core.seeding import derive_seed, python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.grammar import ACTION_SEPARATOR, Names
from starpo.ragen.envs.make import environment_type, settings_type

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML as used by Qwen, without the default system prompt, which would add twenty tokens to every context."""

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FORMAT_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""One token each, but not special: they are part of the response's text and must survive decoding."""

NO_CLASS = "none.Tokenizer"
"""A class that does not exist. For a Qwen2 model, AutoTokenizer replaces the declared class with Qwen2's own, which
splits text by another rule. But if the folder refers to custom code and `trust_remote_code` is off, it uses the
declared class after all: the generic one, which follows tokenizer.json."""

_PIECE = r"[#_O]{2,}\n?| ?\|\|| ?\p{L}+| ?\d|\n| ?[^\s\p{L}\d]|\s"
"""Pre-tokenisation pieces: a map row with its newline, the separator, a word, a digit, a newline, a symbol, a blank."""


class ExtraVocabulary(NamedTuple):
    """Source of the vocabulary that is specific to a policy.

    Attributes:
        environment: Settings of the environment, as JSON.
        demonstrator: `module:attribute` of its demonstrator.
        form: Form of the reasoning (`AgentConfig.form`).
    """

    environment: str
    demonstrator: str
    form: str


MAX_PATCHES = 32
"""Patches along a side of an image for which the embedded policy has positions."""
_EPISODES_EACH, _DECISIONS = 200, 4
"""Episodes per environment and decisions per episode: enough for every word of theirs to occur. Map rows are listed
instead, as some are rare."""


_WITHOUT = {
    TinyPolicy: (
        "and the embedded policy (policy.type = 'tiny') begins by imitating one. Give its class one (demonstrator = "
        "'module:function', docs/extend.md), name one in policy.demonstrator, or train a model that knows the format: "
        "policy.type = 'pretrained', policy.name_or_path = a folder"
    ),
    FineTuning: (
        "and policy.fine_tuning imitates one. Give its class one (demonstrator = 'module:function', docs/extend.md), "
        "name one in policy.fine_tuning.demonstrator, imitate stored episodes (policy.fine_tuning.runs), or leave "
        "policy.fine_tuning out"
    ),
}


def demonstrator(policy: TinyPolicy | FineTuning, environment: EnvironmentSettings) -> str:
    """Return `module:attribute` of the demonstrator that this policy imitates before training on this environment.

    Raises:
        ConfigError: If there is none.
    """
    if policy.demonstrator is not None:
        return DEMONSTRATORS[policy.demonstrator]
    for tag, part in environment.tagged().items():
        if not environment_type(part.type).demonstrator:
            which = "" if part is environment else f" (part '{tag}')"
            raise ConfigError(f"environment '{part.type}'{which} has no demonstrator, {_WITHOUT[type(policy)]}")
    return environment_type(environment.type).demonstrator


def extra_vocabulary(
    policy: TinyPolicy, environment: EnvironmentSettings, form: str = "free"
) -> ExtraVocabulary | None:
    """Return the source of policy-specific vocabulary, of an environment or a form; None if all policies have it, or
    if the policy learns no words (`warm_start_steps` = 0)."""
    is_known = all(_is_in_every_vocabulary(part) for part in environment.tagged().values())
    if policy.warm_start_steps == 0 or (is_known and form == "free"):
        return None
    return ExtraVocabulary(environment.model_dump_json(), demonstrator(policy, environment), form)


def make_tokenizer(extra: ExtraVocabulary | None = None, patch_size: int | None = None) -> "PreTrainedTokenizerFast":
    """Build the tokenizer; the same bytes in every process.

    Args:
        extra: Source of words in addition to those of the built-in environments, from `extra_vocabulary`.
        patch_size: Side length of the patches of images, whose tokens are added; None for a policy that sees none.

    Returns:
        A tokenizer with ChatML as its chat template, `<|im_end|>` as end token and `<|endoftext|>` as padding.
    """
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_make_bpe(extra),
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
        auto_map={"AutoTokenizer": [NO_CLASS, None]},
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    if patch_size is not None:
        from starpo.ragen.agents.vision.image_tokens import IMAGE_TOKENS, PatchTokens

        tokenizer.add_special_tokens({"additional_special_tokens": [TURN_START, *IMAGE_TOKENS]})
        start, pad, end = cast(list[int], tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS)))
        tokenizer.image_tokens = PatchTokens((start,), pad, (end,), patch_size, MAX_PATCHES)
    return tokenizer


@cache
def vocabulary_digest(extra: ExtraVocabulary | None = None) -> str:
    """Digest of everything that determines the ids of a text and the text of a conversation: 16 hexadecimal digits.

    Covers the tokens in the order of their ids, the pre-tokenisation rule and the chat template, but not the libraries
    that implement them.
    """
    vocabulary = _make_bpe(extra).get_vocab()
    meaning = [sorted(vocabulary, key=vocabulary.__getitem__), _PIECE, CHAT_TEMPLATE]
    return hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:16]


def _make_bpe(extra: ExtraVocabulary | None) -> Tokenizer:
    """Build a BPE without merges whose vocabulary consists of whole pieces (`ignore_merges`).

    Learned merges would add a hundred fragments of words that never occur by themselves, and every token costs a row of
    the output layer.
    """
    vocabulary = {token: number for number, token in enumerate(_pieces(extra))}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    bpe.pre_tokenizer = _pre_tokenizer()
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, normalized=False) for token in (END_OF_TEXT, TURN_START, TURN_END)])
    inner = [tag for name in FORMS[extra.form if extra else "free"] for tag in (f"<{name}>", f"</{name}>")]
    bpe.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (*FORMAT_TAGS, *inner)])
    return bpe


@cache
def _pieces(extra: ExtraVocabulary | None) -> tuple[str, ...]:
    """Return the bytes and all whole pieces, in the order of their ids; episodes are played to find them."""
    split = _pre_tokenizer().pre_tokenize_str
    pieces = dict.fromkeys(piece for text in _texts(extra) for piece, _ in split(text))
    return tuple(dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *pieces]))


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _is_in_every_vocabulary(environment: EnvironmentSettings) -> bool:
    return environment.type in VOCABULARY


def _texts(extra: ExtraVocabulary | None) -> Iterator[str]:
    """Yield texts that occur between special tokens and tags in the contexts of the embedded policy."""
    yield "user\nassistant\nsystem\n"
    yield "".join(f" {digit}" for digit in range(10))
    for name in VOCABULARY:
        yield from environment_type(name).words
    played = [
        (settings_type(name)(**changed), environment_type(name).demonstrator)
        for name, overrides in VOCABULARY.items()
        for changed in overrides
    ]
    new_parts: list[EnvironmentSettings] = []
    if extra:
        whole = settings_type(json.loads(extra.environment)["type"]).model_validate_json(extra.environment)
        new_parts = [part for part in whole.tagged().values() if not _is_in_every_vocabulary(part)]
        played += [(part, extra.demonstrator) for part in new_parts]
    for number, (settings, player) in enumerate(played):
        yield from _played_texts(settings, player, number, has_replies=number >= len(played) - len(new_parts))
    for part in new_parts:
        yield from environment_type(part.type).words
    if extra and extra.form != "free":
        from starpo.ragen.envs.statements import all_statements

        yield all_statements()


def _played_texts(settings: EnvironmentSettings, player: str, number: int, *, has_replies: bool) -> Iterator[str]:
    """Yield texts from demonstrated episodes of an environment.

    Args:
        settings: Settings of the environment.
        player: `module:attribute` of the demonstrator.
        number: Index of the environment among those played; determines the episodes' seeds.
        has_replies: Whether to include later observations and the demonstrated actions, in addition to action names.
            For environments that are in every policy's vocabulary, first observations and names are sufficient.
    """
    environment, demonstrate = make(settings), resolve(player)
    for episode in range(_EPISODES_EACH):
        rng = python_random("tokenizer", number, episode)
        with environment_call(settings.type):
            observation, _ = environment.reset(seed=derive_seed("tokenizer", number, episode))
        yield observation
        if isinstance(environment.grammar, Names):
            for action in environment.actions:
                yield f"{action} {ACTION_SEPARATOR} {action}"
        is_over = False
        for _ in range(_DECISIONS):  # later positions may need words that the first one never does
            if not is_over:
                decision = demonstrate(environment, 0.0, rng)
                yield decision.think
                observation, is_over = _carry_out(environment, decision.actions)
                if has_replies:
                    yield f" {ACTION_SEPARATOR} ".join(decision.actions)
                    yield observation


def _carry_out(environment: Environment, actions: tuple[str, ...]) -> tuple[str, bool]:
    """Take the actions until the episode ends; return the last observation, and whether the episode has ended."""
    observation = ""
    for action in actions:
        observation, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            return observation, True
    return observation, False
