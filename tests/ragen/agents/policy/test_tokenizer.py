import subprocess
import sys

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


@settings(deadline=None)
@given(st.text())
def test_any_text_is_decoded_back_exactly(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text


@settings(deadline=None)
@given(st.text(alphabet="#_O X|<>/thinkaswer012\n√"))
def test_text_made_of_map_and_tag_fragments_is_decoded_back_exactly(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text


def test_a_piece_that_an_environment_speaks_is_one_token() -> None:
    for piece in ("#____#\n", "######", "_O__\n", "OOOO\n", " ||", " 7", "Up", " Right", " push", "Trader", " Gambler"):
        assert len(tokens(piece)) == 1, piece


def test_every_bandit_name_is_one_token_in_every_set_of_names() -> None:
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
def test_a_state_prompt_takes_the_same_few_tokens_in_every_state(environment, expected: int) -> None:
    contexts = ContextBuilder(TOKENIZER, STATE_AGENT, 32)
    world = make(environment)
    for seed in range(30):
        observation, _ = world.reset(seed=seed)
        prompt = contexts.start(world).observe(observation, actions_left=10, reward=None, had_invalid_action=False)
        assert len(prompt.prompt_ids) == expected


def test_a_response_takes_the_tokens_of_its_words() -> None:
    # 4 tags + 8 words of the thought + 3 actions and 2 separators
    text = "<think>X down left O up right push left</think><answer>Up || Left || Left</answer>"
    assert len(tokens(text)) == 4 + 8 + 5


def test_format_tags_survive_decoding_and_turn_tokens_do_not() -> None:
    text = "<think>a</think><answer>Up</answer>"
    ids = TOKENIZER.encode(text + "<|im_end|>", add_special_tokens=False)
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == text
    assert ids[-1] == TOKENIZER.eos_token_id
    assert not set(TOKENIZER.convert_tokens_to_ids(list(FORMAT_TAGS))) & set(TOKENIZER.all_special_ids)


def test_a_quoted_turn_token_cannot_end_a_turn() -> None:
    ids = TOKENIZER.encode("<|im_end|>", add_special_tokens=False, split_special_tokens=True)
    assert TOKENIZER.eos_token_id not in ids
    assert TOKENIZER.decode(ids) == "<|im_end|>"


def test_the_chat_template_is_chatml_without_a_system_prompt() -> None:
    messages = [{"role": "user", "content": "s0"}, {"role": "assistant", "content": "a0"}]
    assert TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>user\ns0<|im_end|>\n<|im_start|>assistant\na0<|im_end|>\n<|im_start|>assistant\n"
    )


def test_another_process_makes_the_same_bytes_whatever_its_hash_seed() -> None:
    code = "from starpo.ragen.agents.policy.tokenizer import make_tokenizer as m; print(m().backend_tokenizer.to_str())"
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert made.stdout.strip() == TOKENIZER.backend_tokenizer.to_str(), made.stderr


def test_the_vocabulary_is_small() -> None:
    # 256 bytes, 3 turn tokens, 4 tags, and fewer than 200 pieces
    assert 256 + 3 + 4 < len(TOKENIZER) < 463
