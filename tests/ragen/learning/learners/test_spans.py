"""Tokens are classified as reasoning, answer or format by the text they spell, however it is tokenised."""

from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.parser import parse
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.grammar import Names
from starpo.ragen.learning.learners.data.spans import ANSWER, FORMAT, THINK, Spans

TOKENIZER = make_tokenizer()
SPANS = Spans(TOKENIZER.backend_tokenizer)
F, T, A = FORMAT, THINK, ANSWER


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True)


def kinds(text: str, think: str | None, answer: str | None, end: bool = True) -> list[int]:
    ids = encode(text) + [TOKENIZER.eos_token_id] * end
    return SPANS.kinds(ids, text, think, answer).tolist()


def test_a_response_by_hand():
    # <think> | X | ' up' | </think> | <answer> | Up | ' ||' | ' Left' | </answer> | end
    text = "<think>X up</think><answer>Up || Left</answer>"
    assert kinds(text, "X up", "Up || Left") == [F, T, T, F, F, A, A, A, F, F]


def test_opening_tag_in_prompt():
    assert kinds("X up</think><answer>Up</answer>", "X up", "Up") == [T, T, F, F, A, F, F]


def test_an_answer_alone():
    assert kinds("<answer>Up</answer>", None, "Up") == [F, A, F, F]
    assert kinds("Up</answer>", None, "Up") == [A, F, F]


def test_answer_mentioning_tags_starts_in_place():
    text = "a <tool_call> b</answer>"
    assert kinds(text, None, "a <tool_call> b") == [A] * len(encode("a <tool_call> b")) + [F] * (
        len(encode(text)) - len(encode("a <tool_call> b")) + 1
    )


def test_tool_calls_are_answer_tokens():
    text = "<think>X up</think> <tool_call>Up</tool_call><tool_call>Left</tool_call> "
    between = len(encode("</tool_call><tool_call>"))
    opening, closing = len(encode(" <tool_call>")), len(encode("</tool_call> "))
    expected = [F, T, T, F] + [F] * opening + [A] + [A] * between + [A] * len(encode("Left")) + [F] * (closing + 1)
    assert kinds(text, "X up", "Up</tool_call><tool_call>Left") == expected


def test_imported_answer_follows_its_reasoning():
    assert kinds("<think>X up</think>Up", "X up", "Up") == [F, T, T, F, A, F]
    text = "Up <tool_call>Left</tool_call>"
    assert kinds(text, None, text) == [A] * len(encode(text)) + [F]


def test_malformed_response_is_all_format():
    assert set(kinds("<think>X up<answer>Up", None, None)) == {F}


def test_repeated_words_are_told_apart():
    text = "<think>Up</think><answer>Up</answer>"
    assert kinds(text, "Up", "Up") == [F, T, F, F, A, F, F]


def test_mismatched_tokens_are_unknown():
    assert SPANS.kinds(encode("Up"), "Down", None, None) is None


@given(st.text(alphabet="UpX down|\n#é😀", max_size=20), st.sampled_from(["Up", "Up || Left", "é"]))
def test_token_kind_follows_first_character(think, answer):
    text = f"<think>{think}</think><answer>{answer}</answer>"
    parsed = parse(text, grammar=Names(("Up", "Left")), agent=AgentConfig())
    kinds_of_tokens = kinds(text, parsed.think, parsed.answer, end=False)
    of_characters = [F] * 7 + [T] * len(think) + [F] * 16 + [A] * len(answer) + [F] * 9
    encoded = TOKENIZER(text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    assert kinds_of_tokens == [of_characters[start] for start, _ in encoded["offset_mapping"]]


def test_an_empty_response():
    assert SPANS.kinds([], "", None, None).tolist() == []
