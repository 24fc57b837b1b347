"""The made-up world, the document index, and users' libraries."""

import json
import logging
import sys

import pytest

from starpo.ragen.core.errors import EnvironmentFault, MissingPackageError
from starpo.ragen.envs.search_qa.demonstrations import read_facts
from starpo.ragen.envs.search_qa.index import Index
from starpo.ragen.envs.search_qa.library import made_up, stored
from starpo.ragen.envs.search_qa.world import make_world
from starpo.ragen.envs.sources import file_digest

pytest.importorskip("bm25s", reason="bm25s is not installed (pip install 'starpo[webshop]')")


def test_search_ranks_matches_stably():
    index = Index(["red fox den", "red fox", "blue whale", "red cat", "red red fox"])
    assert index.search("red fox", 10) == [4, 1, 0, 3]  # red twice; both words, shorter text first; one word
    assert index.search("whale", 3) == [2]
    assert index.search("RED, fox?", 2) == index.search("red fox", 2)
    assert Index(["same words", "same words", "other things"]).search("same", 5) == [0, 1]


@pytest.mark.parametrize("query", ["", "?", "x", "zebra", "\x00", "日本", "a" * 10_000])
def test_query_without_known_words_finds_nothing(query):
    assert Index(["red fox", "blue whale"]).search(query, 5) == []


def test_bm25_is_lucenes():
    """One of two documents has the word, once; both have two words: idf = log(1 + 1.5 / 1.5) = 0.6931,
    tf = 1 / (1 + 0.9 * (0.6 + 0.4 * 2 / 2)) = 1 / 1.9."""
    index = Index(["red fox", "blue whale"])
    assert index._scorer.get_scores(["fox"])[0] == pytest.approx(0.6931 / 1.9, rel=1e-3)


def test_missing_bm25s_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingPackageError, match="pip install"):
        Index(["red fox"])


def test_world_depends_on_seed():
    assert make_world(30, (1, 2), 0) == make_world(30, (1, 2), 0)
    assert make_world(30, (1, 2), 0) != make_world(30, (1, 2), 1)


@pytest.mark.parametrize("hops", [(1,), (2,), (1, 2)])
def test_documents_answer_every_question(hops):
    documents, questions = make_world(40, hops, 5)
    texts = {document.title: document.text for document in documents}
    assert len(texts) == 40 + 24
    for question in questions:
        assert len(question.way) == len(question.facts) in hops
        assert question.way[0] in question.text
        for title, fact, following in zip(question.way, question.facts, (*question.way[1:], ""), strict=True):
            (statement,) = [candidate for candidate in read_facts(texts[title]) if candidate.sentence == fact]
            assert statement.name == title
            assert not following or statement.value == following
        assert statement.value in question.answers
    assert len({question.text for question in questions}) == len(questions)


def test_documents_found_by_title():
    library = made_up(60, (1,), 0)
    for document in library.documents:
        assert library.search(document.title, 1) == [document]


def test_a_users_library(tmp_path, caplog):
    documents, questions = tmp_path / "documents.jsonl", tmp_path / "questions.jsonl"
    rows = [
        {"title": "Rome", "text": "Capital of Italy."},
        {"title": "Oslo"},
        {"title": "Bern", "text": "In Switzerland."},
    ]
    documents.write_text("\n".join(map(json.dumps, rows)))
    questions.write_text(
        json.dumps({"question": "Capital of Italy?", "answers": ["Rome"]})
        + '\n{"question": "Why?"}\n{"question": " "}\n'
    )
    files = [text for file in (documents, questions) for text in (str(file), file_digest(str(file)))]
    with caplog.at_level(logging.WARNING):
        library = stored(*files)
    assert [document.title for document in library.search("capital", 5)] == ["Rome"]
    assert [question.text for question in library.questions] == ["Capital of Italy?"]
    assert "1 of 3 rows cannot be used (line 2: 'text' is missing)" in caplog.text
    assert "2 of 3 rows cannot be used (line 2: 'answers' is missing; line 3: 'question' is no text)" in caplog.text
    questions.write_text('{"question": "Why?", "answers": []}')
    with pytest.raises(EnvironmentFault, match=r"no list of texts.*nothing is left to play"):
        stored(*files[:3], file_digest(str(questions)))
