"""SQuAD's comparison of answers, and the rewards of RAGEN-2's SearchQA."""

import pytest

from starpo.ragen.envs.search_qa.scoring import exact_match, f1, normalised, score


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Eiffel Tower", "eiffel tower"),
        ("  a  cat,\tan owl. ", "cat owl"),
        ("U.S.", "us"),
        ("well-known", "wellknown"),
        ("theatre an", "theatre"),
        ("The", ""),
        ("A.B. the C!", "ab c"),
        ("it's", "its"),
        ("“quoted”", "“quoted”"),  # only ASCII punctuation is removed, as in SQuAD's script
    ],
)
def test_normalised(text, expected):
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("Denver Broncos", "Denver Broncos", 1.0),
        ("the Denver Broncos!", "denver broncos", 1.0),
        ("Broncos", "Denver Broncos", 2 / 3),  # precision 1, recall 1/2
        ("Denver Broncos of 2015", "Denver Broncos", 2 / 3),  # precision 1/2, recall 1
        ("red red blue", "red blue", 0.8),  # two shared words: precision 2/3, recall 1
        ("x", "Denver Broncos", 0.0),
        ("the", "an", 1.0),  # both are empty after normalisation
        ("the", "Denver", 0.0),
    ],
)
def test_f1(answer, gold, expected):
    assert f1(answer, (gold,)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        ("The Golden Gate bridge", 1.0),
        ("Golden Gate", 0.8),  # precision 1, recall 2/3
        ("a long red bridge of steel and wire", 0.0),  # one shared word, of 7 and of 3: 2 / 10 < 0.3
        ("one two three four five Golden bridge", 0.4),  # two shared words, of 7 and of 3: 4 / 10
        ("nothing", 0.0),
    ],
)
def test_score_by_hand(answer, paid):
    assert score(answer, ("Golden Gate Bridge",), 0.3) == pytest.approx(paid)


def test_best_right_answer_counts():
    assert exact_match("Bombay", ("Mumbai", "Bombay"))
    assert f1("city of Bombay", ("Mumbai", "Bombay")) == 0.5
    assert score("city of Bombay", ("Mumbai", "Bombay"), 0.3) == 0.5
