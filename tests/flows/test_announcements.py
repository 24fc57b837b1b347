"""What a run tells Prefect: a summary of every iteration, and a percentage now and then, the last one always."""

import logging
import uuid

import pytest

from flows import announcements
from flows.announcements import Announcements


@pytest.fixture
def sent(monkeypatch):
    calls = []
    monkeypatch.setattr(announcements, "_PAUSE_S", 0.0)
    monkeypatch.setattr(announcements, "create_progress_artifact", lambda *_, **__: uuid.uuid4())
    monkeypatch.setattr(announcements, "create_link_artifact", lambda *_, **__: None)
    monkeypatch.setattr(announcements, "create_markdown_artifact", lambda text, **_: calls.append(text))
    monkeypatch.setattr(announcements, "update_progress_artifact", lambda _, percent: calls.append(percent))
    return calls


def announce(num_iterations):
    with Announcements("mine", "file:///mine", logging.getLogger("test")) as announced:
        for done in range(1, num_iterations + 1):
            announced.iteration(done, num_iterations, f"iteration {done}")


def test_iterations_that_follow_at_once_have_a_summary_each_and_the_first_and_last_percentage(sent):
    announce(4)
    assert sent == ["iteration 1", 25.0, "iteration 2", "iteration 3", "iteration 4", 100.0]


def test_slow_iterations_have_a_percentage_each(sent, monkeypatch):
    monkeypatch.setattr(announcements, "_PROGRESS_EVERY_S", 0.0)
    announce(2)
    assert sent == ["iteration 1", 50.0, "iteration 2", 100.0]


def test_what_cannot_be_sent_is_said_and_the_rest_is_sent(sent, monkeypatch, caplog):
    def fail(*_, **__):
        raise ConnectionError("no server")

    monkeypatch.setattr(announcements, "create_markdown_artifact", fail)
    announce(1)
    assert sent == [100.0]
    assert "an artifact of run mine could not be sent to Prefect: no server" in caplog.text
