"""SearchQA: steps, rewards, truncation, tool calls, and the demonstrator."""

import json
import random

import pytest
from pydantic import ValidationError

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.search_qa.demonstrations import demonstrate, read_facts
from starpo.ragen.envs.search_qa.environment import SearchQA, SearchQASettings, plain

pytest.importorskip("bm25s", reason="bm25s is not installed (pip install 'starpo[webshop]')")


@pytest.fixture
def mine(tmp_path):
    """Settings with a user's files."""
    documents, questions = tmp_path / "documents.json", tmp_path / "questions.json"
    documents.write_text(
        json.dumps(
            [
                {"title": "Golden Gate Bridge", "text": f"A bridge. {'Long. ' * 300}"},
                {"title": "Tower [London]", "text": "A bridge, with <b>marks</b> | and bars."},
                *({"title": f"Bridge {n}", "text": "bridge " * 200} for n in range(8)),
            ]
        )
    )
    questions.write_text(
        json.dumps([{"question": f"Which bridge {n}?", "answers": ["Golden Gate Bridge"]} for n in ("is it", "was it")])
    )
    return SearchQASettings(documents=str(documents), questions=str(questions))


def test_a_users_files_keep_the_conventions(mine):
    for actions in ("text", "tools"):
        assert check(mine.model_copy(update={"actions": actions}), should_start_process=False) == []
    assert mine.documents_digest
    assert SearchQASettings.model_validate_json(mine.model_dump_json()) == mine


@pytest.mark.parametrize(
    ("answer", "paid"),
    [("the golden gate bridge!", 1.0), ("Golden Gate", 0.8), ("some bridge in a city far away", 0.0)],
)
def test_only_answers_are_scored(mine, answer, paid):
    environment = SearchQA(mine)
    environment.reset(seed=0)
    assert environment.step("search[bridge]")[1:3] == (0.0, False)
    observation, reward, terminated, truncated, info = environment.step(f"finish[{answer}]")
    assert reward == pytest.approx(paid)
    assert (terminated, truncated, info["is_success"]) == (True, False, paid == 1.0)
    assert observation.splitlines()[-1] == f"Answer: {answer} ({'right' if paid == 1.0 else 'wrong'})"
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("search[bridge]")


def test_rules_state_settings_limits():
    rules = SearchQA(SearchQASettings(max_steps=7, top_k=3)).rules()
    assert "up to 3 documents" in rules
    assert "after 7 actions" in rules


def test_ten_steps_are_all():
    environment = SearchQA(SearchQASettings())
    environment.reset(seed=0)
    ends = [environment.step("search[Ada]")[1:3] for _ in range(10)]
    assert ends == [(0.0, False)] * 9 + [(0.0, True)]
    assert not environment.is_success
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("finish[Ada]")


def test_results_are_five_documents_cut(mine):
    environment = SearchQA(mine)
    environment.reset(seed=0)
    observation, *_ = environment.step("search[bridge]")
    _, searched, results = observation.split("\n", 2)
    assert searched == "Searched: bridge"
    shown = results.split("\n")
    assert len(shown) == len(environment.results) == 5
    for line, document in zip(shown[:-1], environment.results, strict=False):
        assert line == f"{document.title}: {document.text[:800]}"
    environment = SearchQA(mine.model_copy(update={"max_result_chars": 100, "top_k": 2}))
    environment.reset(seed=0)
    assert len(environment.step("search[bridge]")[0].split("\n", 2)[2]) == 100
    assert environment.step("search[zebra]")[0].endswith("Searched: bridge; zebra\nNothing found.")


@pytest.mark.parametrize(
    "action",
    ["search Ada", "search[]", "search[ ]", "look[Ada]", "search[a[b]]", "search[a] finish[b]", f"search[{'x' * 201}]"],
)
def test_unreadable_action_is_refused(action):
    environment = SearchQA(SearchQASettings())
    environment.reset(seed=0)
    assert environment.grammar.read(action) is None
    with pytest.raises(EnvironmentFault, match="is not an action"):
        environment.step(action)


def test_tool_calls_do_the_same():
    texts, calls = SearchQA(SearchQASettings()), SearchQA(SearchQASettings(actions="tools"))
    assert texts.reset(seed=4) == calls.reset(seed=4)
    for kind, text in (("search", "Ada Ash"), ("finish", "a joiner")):
        action = calls.grammar.read(
            json.dumps({"arguments": {{"search": "query", "finish": "answer"}[kind]: text}, "name": kind})
        )
        assert action == calls.write(kind, text)
        assert texts.step(f"{kind}[{text}]") == calls.step(action)
    assert texts.state_digest() == calls.state_digest()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Ada  Ash\n", "Ada Ash"), ("a[b]|c<d>", "a b c d"), ("\x00\ud800", "?"), ("", "?"), ("x" * 300, "x" * 200)],
)
def test_any_text_can_be_searched_for(text, expected):
    assert plain(text) == expected


@pytest.mark.parametrize("actions", ["text", "tools"])
@pytest.mark.parametrize(("skill", "least", "most"), [(0.0, 0.05, 0.3), (1.0, 1.0, 1.0)])
def test_success_equals_skill(actions, skill, least, most):
    environment, successes = make(SearchQASettings(actions=actions)), 0
    sentences = {fact.sentence for document in environment.library.documents for fact in read_facts(document.text)}
    for seed in range(200):
        observation, _ = environment.reset(seed=seed)
        rng = random.Random(seed)
        while not environment.is_over:
            decision = demonstrate(environment, skill, rng)
            assert decision.think.startswith("find ") or f"{decision.think}." in sentences
            assert decision.think.startswith("find ") or decision.think in observation
            observation, *_ = environment.step(decision.actions[0])
        successes += environment.is_success
    assert least <= successes / 200 <= most


@pytest.mark.parametrize("skill", [0.0, 1.0])
def test_users_questions_can_be_demonstrated(mine, skill):
    environment, won = make(mine), 0
    for seed in range(20):
        environment.reset(seed=seed)
        rng = random.Random(seed)
        environment.step(demonstrate(environment, skill, rng).actions[0])
        environment.step(demonstrate(environment, skill, rng).actions[0])
        assert environment.is_over
        won += environment.is_success
    assert won == 20 * skill


def test_one_file_alone_is_refused(mine):
    with pytest.raises(ValidationError, match="questions names a file and documents does not"):
        SearchQASettings(questions=mine.questions)
