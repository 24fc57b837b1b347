"""Lengths of prompts are those of the contexts that rollouts build."""

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.lengths import PromptLengths, num_in_sight, prompt_lengths
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings

FULL = AgentConfig(max_turns=5)
WINDOW = AgentConfig(max_turns=5, context="window", window_turns=2)


def test_turns_that_fit() -> None:
    lengths = PromptLengths(shortest=90, longest=100, later=30, num_states=4)
    for limit, expected in ((163, 0), (164, 1), (351, 2), (352, 3), (10_000, 5)):  # turn 3 needs 100 + 2 * 94 + 64
        assert lengths.num_turns_within(FULL, 64, limit) == expected
    # a window of two turns needs 100 + 94 + 64, however many there are
    assert [lengths.num_turns_within(WINDOW, 64, limit) for limit in (257, 258)] == [1, 5]
    assert num_in_sight(WINDOW, 5) == 2


def test_a_bandit_has_one_prompt() -> None:
    agent = AgentConfig(max_turns=1, max_actions=1, max_actions_per_turn=1, prompt="state")
    contexts = ContextBuilder(make_tokenizer(), agent, 32)
    lengths = prompt_lengths(BanditSettings(), contexts, num_states=3)
    # <|im_start|>, user, newline, "Arms", ":", two names of a token each, <|im_end|>, newline, <|im_start|>,
    # assistant, newline: the pieces of the template, and 4 tokens of text
    text = len(contexts.encoder.encode("Arms: Teacher Trader"))
    around = len(contexts.pieces.opening_ids) + len(contexts.pieces.generation_ids)
    assert (lengths.shortest, lengths.longest, lengths.later) == (around + text, around + text, 0)


def test_later_turn_excludes_previous_response() -> None:
    agent = AgentConfig(max_turns=3, prompt="full", should_show_reward=False)
    contexts = ContextBuilder(make_tokenizer(), agent, 32)
    lengths = prompt_lengths(SokobanSettings(), contexts, num_states=2)
    assert 0 < lengths.later < lengths.shortest <= lengths.longest
