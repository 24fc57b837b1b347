"""Questions: sums in words whose answers follow from the text, and files of which no row is dropped silently."""

import json
import logging
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.metamath_qa.questions import normalised, stored_questions, sum_in_words
from starpo.ragen.envs.sources import file_digest

VERBS = dict.fromkeys(("gets", "finds", "buys", "wins"), 1) | dict.fromkeys(("loses", "sells", "drops", "lends"), -1)
GOOD = {"query": "What is 2 + 2?", "response": "Two and two.\nThe answer is: 4", "type": "GSM_Rephrased"}


@given(st.integers(0, 2**32), st.integers(1, 2), st.integers(2, 100))
def test_question_text_evaluates_to_its_answer(seed, num_steps, largest):
    question = sum_in_words(num_steps, largest, random.Random(seed))
    words = question.text.replace(".", "").split()
    total = int(words[2])
    if words[3] == "bags":
        total *= int(words[5])
    for verb, number in pairwise(words):
        if verb in VERBS:
            total += VERBS[verb] * int(number)
            assert total >= 0
    assert question.answer == str(total)
    assert len(question.changes) == num_steps
    assert all(int(word) <= largest for word in words if word.isdigit())


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("4", "4"),
        (" 4 \n", "4"),
        ("The answer is: 4", "4"),
        ("so.\nthe ANSWER is:  x + Y", "x+y"),
        ("The answer is: 3. No. The answer is: 4", "4"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
        ("1 000", "1000"),
        ("4.0", "4.0"),  # texts are compared, not values
    ],
)
def test_what_is_compared(text, compared):
    assert normalised(text) == compared


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("as_lines", [True, False])
def test_file_may_be_list_or_lines(tmp_path, as_lines, encoding):
    rows = [GOOD, GOOD | {"query": " And 3 + 3? ", "response": "The answer is: 6"}]
    file = tmp_path / "mine.json"
    content = "\n".join(map(json.dumps, rows)) + "\n\n" if as_lines else json.dumps(rows, indent=1)
    file.write_text(content, encoding=encoding)
    questions = stored_questions(str(file), file_digest(str(file)))
    assert [(question.text, question.answer) for question in questions] == [
        ("What is 2 + 2?", "4"),
        ("And 3 + 3?", "6"),
    ]


BAD = [
    ("{", "no JSON"),
    ("[1]", "a list, no object"),
    (json.dumps({"query": "Why?"}), "'response' is missing"),
    (json.dumps(GOOD | {"query": 3}), "'query' is no text"),
    (json.dumps(GOOD | {"response": "4"}), "'response' does not say 'The answer is:'"),
    (json.dumps(GOOD | {"response": "The answer is: "}), "nothing follows 'The answer is:'"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_rows_are_counted_and_logged(tmp_path, caplog, line, message):
    file = tmp_path / "mine.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n{line}\n")
    with caplog.at_level(logging.WARNING):
        assert len(stored_questions(str(file), file_digest(str(file)))) == 1
    assert "1 of 2 rows cannot be used (line 2: " + message in caplog.text
    assert "the other 1 are played" in caplog.text


def test_unreadable_question_files_are_rejected(tmp_path):
    file = tmp_path / "mine.json"
    for content, message in (("", "holds no rows"), ("[]", "holds no rows"), ("[{]", "but is damaged")):
        file.write_text(content)
        with pytest.raises(EnvironmentFault, match=message):
            stored_questions(str(file), file_digest(str(file)))
    digest = file_digest(str(file))
    file.unlink()
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        stored_questions(str(file), digest)
    with pytest.raises(ValueError, match="cannot be read"):
        file_digest(str(file))
