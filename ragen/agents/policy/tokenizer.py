"""`make_tokenizer`: a small byte-level BPE that speaks what the environments and their demonstrators say.

Few tokens a turn is what makes the embedded policy fast: a row of a map, a word, ` ||` and a digit with its leading
space are one token each, so a turn of the 'state' prompt is about 24 tokens and a response about 17. Every byte is in
the vocabulary, so any text can be encoded and is decoded back exactly; text that no environment speaks takes a token a
byte.

    observations, thoughts, actions --cut into pieces--> vocabulary = bytes + pieces + format tags + turn tokens
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from starpo.ragen.config.agent import FORMS
from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import DEMONSTRATORS, ENVIRONMENTS
from starpo.ragen.core.seeding import derive_seed, python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.grammar import ACTION_SEPARATOR, Names
from starpo.ragen.envs.make import environment_type, settings_type
from starpo.ragen.envs.statements import all_statements

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML as Qwen uses it, without the default system prompt: it would cost every context twenty tokens."""

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FORMAT_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""One token each, yet not special: they are part of the response's text and must survive decoding."""

_NO_CLASS = "none.Tokenizer"
"""A class that is not there. Beside a Qwen2 model AutoTokenizer ignores the declared class and puts Qwen2's own in its
place, which cuts text by another rule. But where a folder names code of its own, and nobody said to trust that, it
takes the declared class after all: the generic one, which does what tokenizer.json says."""

_PIECE = r"[#_O]{2,}\n?| ?\|\|| ?\p{L}+| ?\d|\n| ?[^\s\p{L}\d]|\s"
"""Text is cut into these: a map row with its line end, the separator, a word, a digit, a line end, a mark, a blank."""


class Speech(NamedTuple):
    """What is said beside the words that every policy has.

    Attributes:
        environment: The settings of what is played, as JSON.
        demonstrator: `module:attribute` of who demonstrates it.
        form: Of the reasoning (`AgentConfig.form`).
    """

    environment: str
    demonstrator: str
    form: str


_EPISODES_EACH, _DECISIONS = 200, 4
"""Enough for every word of theirs to be said; map rows are listed instead, as some are rare."""


def demonstrator(policy: TinyPolicy | FineTuning, environment: EnvironmentSettings) -> str:
    """`module:attribute` of who is imitated before this policy learns to play this environment.

    Raises:
        ConfigError: If there is nobody.
    """
    if policy.demonstrator is not None:
        return DEMONSTRATORS[policy.demonstrator]
    for tag, part in environment.tagged().items():
        if not environment_type(part.type).demonstrator:
            which = "" if part is environment else f" (part '{tag}')"
            raise ConfigError(
                f"environment '{part.type}'{which} has no demonstrator, and the embedded policy (policy.type = 'tiny') "
                "begins by imitating one. Give its class one (demonstrator = 'module:function', docs/extend.md), name "
                "one in policy.demonstrator, or train a model that knows the format: policy.type = 'pretrained', "
                "policy.name_or_path = a folder"
            )
    return environment_type(environment.type).demonstrator


def unknown_speech(policy: TinyPolicy, environment: EnvironmentSettings, form: str = "free") -> Speech | None:
    """Words that not every policy has, an environment's or a form's: they are tokens of this one alone."""
    is_known = all(_is_spoken_by_all(part) for part in environment.tagged().values())
    if is_known and form == "free":
        return None
    return Speech(environment.model_dump_json(), demonstrator(policy, environment), form)


def make_tokenizer(speech: Speech | None = None) -> "PreTrainedTokenizerFast":
    """Make the tokenizer; the same bytes in every process.

    Args:
        speech: Whose words are tokens beside those of the built-in environments, from `unknown_speech`.

    Returns:
        A tokenizer with ChatML as its chat template, `<|im_end|>` as end token and `<|endoftext|>` as padding.
    """
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_make_bpe(speech),
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
        auto_map={"AutoTokenizer": [_NO_CLASS, None]},
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@cache
def vocabulary_digest(speech: Speech | None = None) -> str:
    """All that decides which ids a text becomes, and which text a conversation: 16 hexadecimal digits.

    Of the tokens in the order of their ids, the rule that cuts text, and the chat template; not of the libraries that
    carry them out.
    """
    vocabulary = _make_bpe(speech).get_vocab()
    meaning = [sorted(vocabulary, key=vocabulary.__getitem__), _PIECE, CHAT_TEMPLATE]
    return hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:16]


def _make_bpe(speech: Speech | None) -> Tokenizer:
    """A BPE without merges whose vocabulary holds whole pieces (`ignore_merges`).

    Learned merges would add a hundred fragments of words that never occur by themselves, and every token costs a row of
    the output layer.
    """
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    pieces = dict.fromkeys(piece for text in _spoken(speech) for piece, _ in pre_tokenizer.pre_tokenize_str(text))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*alphabet, *pieces]))}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    bpe.pre_tokenizer = pre_tokenizer
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, normalized=False) for token in (END_OF_TEXT, TURN_START, TURN_END)])
    inner = [tag for name in FORMS[speech.form if speech else "free"] for tag in (f"<{name}>", f"</{name}>")]
    bpe.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (*FORMAT_TAGS, *inner)])
    return bpe


def _is_spoken_by_all(environment: EnvironmentSettings) -> bool:
    is_built_in = environment.type in ENVIRONMENTS and environment.type not in ENVIRONMENTS.packages
    return is_built_in and bool(environment_type(environment.type).spoken)


def _spoken(speech: Speech | None) -> Iterator[str]:
    """What stands between special tokens and tags in the contexts of the embedded policy."""
    yield "user\nassistant\nsystem\n"
    yield "".join(f" {digit}" for digit in range(10))
    built_in = [environment_type(name) for name in ENVIRONMENTS if name not in ENVIRONMENTS.packages]
    for environment in built_in:
        yield from environment.words
    played = [
        (environment.settings_type(**changed), environment.demonstrator)
        for environment in built_in
        for changed in environment.spoken
    ]
    own: list[EnvironmentSettings] = []
    if speech:
        whole = settings_type(json.loads(speech.environment)["type"]).model_validate_json(speech.environment)
        own = [part for part in whole.tagged().values() if not _is_spoken_by_all(part)]
        played += [(part, speech.demonstrator) for part in own]
    for number, (settings, player) in enumerate(played):
        yield from _said(settings, player, number, is_told_later=number >= len(played) - len(own))
    for part in own:
        yield from environment_type(part.type).words
    if speech and speech.form != "free":
        yield all_statements()


def _said(settings: EnvironmentSettings, player: str, number: int, *, is_told_later: bool) -> Iterator[str]:
    """What is said in some episodes of an environment.

    Args:
        settings: What is played.
        player: Who plays.
        number: Of the environment among those that are played; gives the episodes' seeds.
        is_told_later: Are later observations and the demonstrated actions said too, beside names of actions? Of the
            environments that every policy speaks, first observations and names are all there is.
    """
    environment, demonstrate = make(settings), resolve(player)
    for episode in range(_EPISODES_EACH):
        rng = python_random("tokenizer", number, episode)
        observation, _ = environment.reset(seed=derive_seed("tokenizer", number, episode))
        yield observation
        if isinstance(environment.grammar, Names):
            for action in environment.actions:
                yield f"{action} {ACTION_SEPARATOR} {action}"
        is_over = False
        for _ in range(_DECISIONS):  # a later position may call for words that the first one never does
            if not is_over:
                decision = demonstrate(environment, 0.0, rng)
                yield decision.think
                observation, is_over = _carry_out(environment, decision.actions)
                if is_told_later:
                    yield f" {ACTION_SEPARATOR} ".join(decision.actions)
                    yield observation


def _carry_out(environment: Environment, actions: tuple[str, ...]) -> tuple[str, bool]:
    """Take the actions until the episode ends: what is seen then, and does it end?"""
    observation = ""
    for action in actions:
        observation, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            return observation, True
    return observation, False
