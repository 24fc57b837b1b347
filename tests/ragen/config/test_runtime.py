"""Settings from environment variables are read once, and again only after the variables have changed."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from starpo.ragen.config.runtime import Runtime


def test_the_same_environment_is_read_once(monkeypatch):
    monkeypatch.setenv("STARPO_STORE", "here")
    first = Runtime.current()
    monkeypatch.setenv("SOMETHING_ELSE", "changed")
    assert Runtime.current() is first
    assert first.store == "here"


@pytest.mark.parametrize("name", ["STARPO_STORE", "starpo_store"])
def test_changed_environment_is_reread(monkeypatch, name):
    monkeypatch.delenv("STARPO_STORE", raising=False)
    assert Runtime.current().store == "var/store"
    monkeypatch.setenv(name, "there")
    assert Runtime.current().store == "there"
    monkeypatch.delenv(name)
    assert Runtime.current().store == "var/store"


def test_core_count_changes_threads(monkeypatch):
    monkeypatch.delenv("STARPO_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)), raising=False)
    before = Runtime.current().threads
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(5)), raising=False)
    assert (before, Runtime.current().threads) == (3, 5)


def test_wrong_values_refused_each_time(monkeypatch):
    monkeypatch.setenv("STARPO_THREADS", "0")
    for _ in range(2):
        with pytest.raises(ValidationError, match="threads"):
            Runtime.current()


def test_every_variable_is_documented():
    root = Path(__file__).parents[3]
    read = "".join(page.read_text(encoding="utf-8") for page in (root / "README.md", *(root / "docs").glob("*.md")))
    variables = [f"STARPO_{name.upper()}" for name in Runtime.model_fields]
    assert [name for name in variables if not re.search(rf"\b{name}\b", read)] == []
