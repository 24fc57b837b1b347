import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.agents.policy.tokenizer import FORMAT_TAGS, make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.environment import NAME_PAIRS
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings

TOKENIZER = make_tokenizer()
STATE_AGENT = AgentConfig(prompt="state", context="window", should_show_reward=False)


def tokens(text: str) -> list[str]:
    return TOKENIZER.tokenize(text)


@pytest.mark.ci
@settings(deadline=None)
@given(st.text() | st.text(alphabet="#_O X|<>/thinkaswer012\n√"))
def test_any_text_is_decoded_back_exactly(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text


def test_environment_words_are_single_tokens() -> None:
    for piece in ("#____#\n", "######", "_O__\n", "OOOO\n", " ||", " 7", "Up", " Right", " push", "Trader", " Gambler"):
        assert len(tokens(piece)) == 1, piece


def test_bandit_names_are_single_tokens() -> None:
    for pairs in NAME_PAIRS.values():
        for name in (name for pair in pairs for name in pair):
            assert len(tokens(name)) == len(tokens(f" {name}")) == 1, name


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        # <|im_start|> user \n = 3; P, X, O and two coordinates each = 9; \n = 1; six rows = 6;
        # <|im_end|> \n <|im_start|> assistant \n = 5
        (SokobanSettings(observation="compact", generator="distance"), 3 + 9 + 1 + 6 + 5),
        # P and G with two coordinates each = 6, and four rows
        (FrozenLakeSettings(observation="compact"), 3 + 6 + 1 + 4 + 5),
    ],
)
def test_state_prompt_length_is_constant(environment, expected: int) -> None:
    contexts = ContextBuilder(TOKENIZER, STATE_AGENT, 32)
    world = make(environment)
    for seed in range(30):
        observation, _ = world.reset(seed=seed)
        prompt = contexts.start(world).observe(observation, actions_left=10, reward=None, had_invalid_action=False)
        assert len(prompt.prompt_ids) == expected


def test_format_tags_survive_decoding() -> None:
    text = "<think>a</think><answer>Up</answer>"
    ids = TOKENIZER.encode(text + "<|im_end|>", add_special_tokens=False)
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == text
    assert ids[-1] == TOKENIZER.eos_token_id
    assert not set(TOKENIZER.convert_tokens_to_ids(list(FORMAT_TAGS))) & set(TOKENIZER.all_special_ids)
