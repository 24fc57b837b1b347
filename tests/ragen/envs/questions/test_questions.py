"""Questions of a user's file: columns, scoring, panels of a test file, and what cannot be used."""

import json
import logging
import random
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.core.errors import ConfigError, EnvironmentFault
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.data_sets import plain_name
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.questions.demonstrations import demonstrate
from starpo.ragen.envs.questions.environment import Questions, QuestionsSettings, score_of
from starpo.ragen.envs.questions.guess import guess_settings
from starpo.ragen.envs.questions.question import Columns, FileQuestion, question_of
from starpo.ragen.envs.questions.scoring import chosen, matches, number, same_number

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows as JSON lines and return the path."""

    def to_file(rows: list[Any], name: str = "questions.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return to_file


def sums(start: int, number_of: int) -> list[dict[str, Any]]:
    return [{"question": f"{n} + 1 = ?", "answer": n + 1} for n in range(start, start + number_of)]


def choice(answer: Any, **more: Any) -> dict[str, Any]:
    return {"question": "Capital of France?", "choices": ["Rome", "Paris", "Bonn"], "answer": answer, **more}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("so it is $1,234.50 in all", Fraction(2469, 2)),
        ("#### -3/4", Fraction(-3, 4)),
        ("1e3", 1000),
        ("50%", 50),
        ("about .5", Fraction(1, 2)),
        ("no idea", None),
        ("3/0", None),
    ],
)
def test_number_reads_last_in_text(text: str, value: Any) -> None:
    assert number(text) == value


def test_numbers_are_compared_up_to_rounding() -> None:
    assert same_number("0.3333333333", ["1/3"]) == 1.0
    assert same_number("0.333", ["1/3"]) == 0.0
    assert same_number("the answer is 7", ["6", "7"]) == 1.0


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"), ("(b)", "B"), ("**B**", "B"), ("B. Paris", "B"), ("paris.", "B"), ("The answer is (C).", "C"),
        ("A or B", None), ("A cat", None), ("D", None), ("Paris or Rome", None), ("", None),
    ],
)  # fmt: skip
def test_choice_matches_letter_or_text(answer: str, letter: str | None) -> None:
    assert chosen(answer, ["Rome", "Paris", "Bonn"]) == letter


@pytest.mark.parametrize(
    "row",
    [
        choice("B"),
        choice(1),
        choice("Paris"),
        choice("2", choices={"text": ["Rome", "Paris", "Bonn"], "label": ["1", "2", "3"]}),
        choice(["B"]),
    ],
)
def test_correct_choice_accepts_every_notation(row: dict[str, Any]) -> None:
    question = question_of(row, Columns(), "choice")
    assert question.text == "Capital of France?\nA. Rome\nB. Paris\nC. Bonn"
    assert question.answers == ("B",)


def test_pattern_that_explodes_is_a_fault() -> None:
    assert matches("aab", ["a+b"]) == 1.0
    assert matches("aab!", ["a+b"]) == 0.0
    with pytest.raises(EnvironmentFault, match="more than 1 s"):
        matches("a" * 40 + "!", ["(a|a|aa)+$"])


def test_panel_holds_the_test_file_alone(write: Write) -> None:
    settings = QuestionsSettings(path=write(sums(0, 50)), test=write(sums(100, 20), "test.jsonl"), scoring="number")
    panel = make_panel(settings, 20, 7)
    environment = make(settings)
    texts = [environment.reset(seed=seed)[0] for seed in panel.env_seeds]
    assert sorted(texts) == sorted(row["question"] for row in sums(100, 20))
    assert make_panel(settings, 5, 7).env_seeds == panel.env_seeds[:5]
    assert make_panel(settings, 20, 8).env_seeds != panel.env_seeds
    trained = {environment.reset(seed=derive_seed(0, "train", n))[0] for n in range(400)}
    assert trained == {row["question"] for row in sums(0, 50)}
    with pytest.raises(EnvironmentFault, match=r"test\.jsonl has 20 different questions, fewer than a panel of 21"):
        make_panel(settings, 21, 7)


def test_questions_in_both_files_are_excluded(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    settings = QuestionsSettings(path=write(sums(0, 10)), test=write(sums(5, 10), "test.jsonl"), scoring="number")
    with caplog.at_level(logging.WARNING):
        panel = make_panel(settings, 10, 1)
    assert "5 of 10 questions" in caplog.text
    environment = make(settings)
    seeds = (fresh_env_seed(settings, 0, "train", n, excluded=panel.excluded_digests) for n in range(60))
    assert {environment.reset(seed=seed)[0] for seed in seeds} == {row["question"] for row in sums(0, 5)}


def test_panel_from_training_file_is_excluded(write: Write) -> None:
    settings = QuestionsSettings(path=write([*sums(0, 40), *sums(0, 5)]), scoring="number")
    panel = make_panel(settings, 10, 1)
    assert len(set(panel.state_digests)) == 10
    environment = make(settings)
    seeds = (fresh_env_seed(settings, 0, "train", n, excluded=panel.excluded_digests) for n in range(100))
    held_out = {environment.reset(seed=seed)[0] for seed in panel.env_seeds}
    assert not held_out & {environment.reset(seed=seed)[0] for seed in seeds}


def test_one_answer_for_all_is_remarked(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"question": f"{n}?", "answer": "yes"} for n in range(8)]
    with caplog.at_level(logging.WARNING):
        make_panel(QuestionsSettings(path=write(rows)), 4, 1)
    assert "all 8 questions" in caplog.text
    assert "have the same answer" in caplog.text


def test_repeated_questions_are_remarked(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    path = write([*sums(0, 4), *sums(1, 2)])
    assert len(QuestionsSettings(path=path).panel_seeds(4, 0) or []) == 4
    assert f"2 of 6 questions of {path} repeat another one" in caplog.text


def test_unusable_rows_are_counted_and_named(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    rows = [*sums(0, 3), {"question": "no answer?"}, {"question": "", "answer": 1}, {"question": "?", "answer": "x"}, 7]
    settings = QuestionsSettings(path=write(rows), scoring="number")
    with caplog.at_level(logging.WARNING):
        assert len(settings.questions()) == 3
    assert "4 of 7 rows cannot be used (line 4: 'answer' is missing" in caplog.text
    assert "line 6: 'answer' holds no number: 'x'" in caplog.text
    with pytest.raises(EnvironmentFault, match="nothing is left to play"):
        QuestionsSettings(path=write([{"query": "?"}], "other.jsonl")).questions()


@pytest.mark.parametrize("scoring", ["number", "choice", "text"])
def test_questions_keep_the_conventions(write: Write, scoring: str) -> None:
    rows = [choice(n % 3, question=f"{n}?") for n in range(12)] if scoring == "choice" else sums(0, 12)
    settings = QuestionsSettings(path=write(rows), scoring=scoring, max_tries=3)
    assert check(settings, should_start_process=False) == []


def test_later_tries_pay_half_as_much(write: Write) -> None:
    environment = make(QuestionsSettings(path=write(sums(1, 1)), scoring="number", max_tries=3))
    assert "You have 3 tries" in environment.rules()
    environment.reset(seed=0)
    assert environment.step("9")[:3] == ("1 + 1 = ?\nAnswered: 9\nIncorrect.", 0.0, False)
    observation, reward, terminated, truncated, info = environment.step("It is 2.")
    assert (reward, terminated, truncated, info["is_success"], info["tries"]) == (0.5, True, False, True, 2)
    assert observation.endswith("Correct.")
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("2")


def test_function_scores_with_the_row(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_scores.py").write_text(
        "def near(answer, row):\n    return max(0.0, 1 - abs(len(answer) - row['answer']) / 4)\n"
        "def wrong(answer, row):\n    return 'good'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = write([{"question": "How long?", "answer": 4}])
    settings = QuestionsSettings(path=path, scoring="my_scores:near")
    assert settings.scoring_digest
    environment = make(settings)
    environment.reset(seed=0)
    _, reward, terminated, _, info = environment.step("abc")
    assert (reward, terminated, info["is_success"]) == (0.75, True, False)
    question = FileQuestion("?", ("4",), row={"answer": 4})
    with pytest.raises(EnvironmentFault, match="gave 'good' for an answer; expected a number from 0 to 1"):
        score_of("my_scores:wrong", "abc", question)
    sys.modules.pop("my_scores", None)


def test_function_of_unknown_module_is_refused(write: Write) -> None:
    with pytest.raises(ValidationError, match="found no source of module 'scorerr'; expected module:function"):
        QuestionsSettings(path=write(sums(0, 4)), scoring="scorerr:half")


def test_settings_follow_the_files(write: Write) -> None:
    settings = QuestionsSettings(path=write(sums(0, 3)))
    again = QuestionsSettings.model_validate_json(settings.model_dump_json())
    assert again == settings
    write(sums(0, 4))
    assert QuestionsSettings(path=settings.path).digest != settings.digest
    with pytest.raises(EnvironmentFault, match="has changed"):
        make(settings).reset(seed=2**40)
    with pytest.raises(ValidationError, match="found 'bleu'; expected 'number', 'exact', 'text', 'pattern', 'choice'"):
        QuestionsSettings(path=settings.path, scoring="bleu")
    with pytest.raises(ValidationError, match="cannot be read"):
        QuestionsSettings(path=f"{settings.path}.missing")


def test_parquet_is_read_like_json_lines(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "questions.parquet"
    pq.write_table(pa.Table.from_pylist(sums(0, 3)), path)
    by_lines, by_parquet = (
        QuestionsSettings(path=source, scoring="number").questions() for source in (write(sums(0, 3)), str(path))
    )
    assert by_lines == by_parquet
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_bytes(path.read_bytes())
    assert QuestionsSettings(path=str(renamed), scoring="number").questions() == by_parquet


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"PAR1\x15\x04", r"a\.parquet begins as a Parquet file, but is damaged or not whole: 6 bytes"),
        ("a.parquet", b"\x15\x04\x15\x00", r"a\.parquet is no Parquet file: it begins with b'\\x15\\x04.* expected"),
        ("a.parquet", b"What?\nWhy?\n", r"a\.parquet is no Parquet file: it begins with b'What\?"),
        ("a.parquet", b"", r"a\.parquet holds no rows, in 0 bytes; expected .* or a Parquet file"),
        ("a.jsonl", b"ARROW1\0\0", r"a\.jsonl is neither JSON nor Parquet: it begins with b'ARROW1"),
        ("a.jsonl", '{"question": "1?"}\n'.encode("utf-16"), r"a\.jsonl is neither JSON nor Parquet"),
        ("a.csv", b"question,answer\n1?,2\n", r"a\.csv is neither JSON nor Parquet: it begins with b'question,ans"),
        ("a.json", b'[{"question": "1', r"a\.json begins as a JSON list, but is damaged or not whole: "),
    ],
)
def test_file_of_other_format_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EnvironmentFault, match=message):
        guess_settings(str(path))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/sums.test.jsonl", "sums.test"),
        ("hf:openai/gsm8k:main:test", "gsm8k main test"),
        ("hf:/data/sums/", "sums"),
        ("hf:/data/sums:train", "sums train"),
        ("(my) sums?.jsonl", "my- sums"),
        ("\u6570.jsonl", "questions"),
        ("a" * 99 + ".jsonl", "a" * 64),
    ],
)
def test_panel_name_of_questions(path: str, name: str) -> None:
    assert plain_name(path) == name
    assert EvaluationConfig(variants={name: {"type": "bandit"}}).variants


@pytest.mark.parametrize("source", ["one", "splits:test", "parquet:test", "one:test"])
def test_data_set_folder_is_read(tmp_path: Path, source: str) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    one, other = (datasets.Dataset.from_list(sums(0, number), split="test") for number in (3, 4))
    one.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": other, "test": one}).save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "parquet").mkdir()
    for name, rows in (("train", other), ("test", one)):
        rows.to_parquet(tmp_path / "parquet" / f"{name}-00000-of-00001.parquet")
    settings = QuestionsSettings(path=f"hf:{tmp_path}/{source}", scoring="number")
    assert [question.text for question in settings.questions()] == ["0 + 1 = ?", "1 + 1 = ?", "2 + 1 = ?"]
    (tmp_path / "none").mkdir()
    for wrong, message in (
        ("splits", "splits holds the splits train, test: name one, as hf:.*/splits:train"),
        ("splits:dev", "splits holds the splits train, test: name one"),
        ("one:dev", "one holds the split 'test' alone: name hf:.*/one"),
        ("parquet", "parquet is a folder that save_to_disk did not write; .*, as hf:.*/parquet:train"),
        ("nothing", "expected hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT"),
    ):
        with pytest.raises(ValidationError, match=message):
            QuestionsSettings(path=f"hf:{tmp_path}/{wrong}")


def test_data_set_columns_of_all_kinds(tmp_path: Path) -> None:
    """A class is its number, a list of records a list, an image the bytes of its file."""
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    features = {
        "question": datasets.Value("string"),
        "choices": datasets.List(datasets.Value("string")),
        "answer": datasets.ClassLabel(names=["A", "B", "C"]),
        "image": datasets.Image(),
    }
    columns = {
        "question": ["Which?"], "choices": [["red", "blue", "green"]], "answer": [1],
        "image": [Image.new("RGB", (8, 8), "blue")],
    }  # fmt: skip
    datasets.Dataset.from_dict(columns, features=datasets.Features(features)).save_to_disk(str(tmp_path / "all"))
    settings = guess_settings(f"hf:{tmp_path / 'all'}")
    (question,) = settings.questions()
    assert (settings.scoring, question.answers, question.choices) == ("choice", ("B",), ("red", "blue", "green"))
    assert question.picture.startswith(b"\x89PNG")
    assert settings.digest == guess_settings(f"hf:{tmp_path / 'all'}").digest


def test_demonstrator_accuracy_is_its_skill(write: Write) -> None:
    environment = make(
        QuestionsSettings(path=write([choice(n % 3, question=f"{n}?") for n in range(9)]), scoring="choice")
    )
    assert isinstance(environment, Questions)
    environment.reset(seed=4)
    rng = random.Random(0)
    assert {demonstrate(environment, 1.0, rng).actions[0] for _ in range(20)} == set(environment.question.answers)
    assert {demonstrate(environment, 0.0, rng).actions[0] for _ in range(60)} == {"A", "B", "C"}


def test_unusable_rows_warned_of_once(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    path = write([{"question": "1 + 1?", "answer": "2"}, {"question": "", "answer": "2"}])
    with Path(path).open("a") as file:
        file.write("no JSON\n")
    guess_settings(path).questions()
    (warning,) = caplog.messages
    assert "2 of 3 rows cannot be used (line 2: 'question' is empty, or no text; line 3: no JSON" in warning


def test_settings_are_guessed_from_the_columns(write: Write) -> None:
    gsm = guess_settings(write([{"question": "How many?", "answer": "First 2, then 3.\n#### 5"}] * 2))
    assert (gsm.scoring, gsm.columns) == ("number", Columns())
    arc = guess_settings(
        write([{"question": "?", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}], "arc.jsonl")
    )
    assert (arc.scoring, arc.columns.answer) == ("choice", "answerKey")
    trivia = guess_settings(write([{"Query": "Who?", "Response": "Ada Ash, in 1843"}], "trivia.jsonl"))
    assert (trivia.scoring, trivia.columns.question) == ("text", "Query")
    with pytest.raises(ConfigError, match="'left', 'right', none of which is known as the question's"):
        guess_settings(write([{"left": 1, "right": 2}], "odd.jsonl"))
