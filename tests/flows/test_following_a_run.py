"""A person who follows a run in an ordinary terminal sees where it is, how well it does, and how long it takes."""

from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from flows.console.follow import Outcome, RunFailedError, follow_run
from ragen.store import Store

FACTS = {
    "iteration": 52.0,
    "iterations": 60.0,
    "evaluation": 0.656,
    "success": 0.773,
    "reward_std": 1.96,
    "seconds_left": 139.0,
    "fraction": 0.32,
}


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path))
    store.runs.set_state("a-run", "running", "variance_filter", FACTS)
    return store


def followed(store, outcome, **of_console):
    console = Console(file=StringIO(), width=80, **of_console)
    follow_run(store, "a-run", console, lambda: outcome)
    return Text.from_ansi(console.file.getvalue()).plain


def test_eighty_columns_hold_everything(store):
    screen = followed(store, Outcome("completed", ""), force_terminal=True)
    for part in (
        "iteration 52/60 · variance_filter 32%",
        "0:00:00",
        "panel success 0.656 · training success 0.773 · reward std 1.96 · 139 s left",
    ):
        assert part in screen


def test_without_a_terminal_a_line_says_it(store):
    text = followed(store, Outcome("completed", ""))
    assert text.count("\n") == 1
    assert text.startswith("iteration 52/60 panel success 0.656")


def test_success_measured_updates_ago_says_when_and_nothing_is_cut(store):
    store.runs.set_state("a-run", "running", "rollout", {**FACTS, "evaluated_at": 50.0})
    assert "panel success 0.656 (after 50 updates) · training" in followed(store, Outcome("completed", ""))
    screen = followed(store, Outcome("completed", ""), force_terminal=True)
    assert "panel success 0.656 (after 50 updates) · training success 0.773 · reward std" in " ".join(screen.split())
    assert "139 s left" in screen
    store.runs.set_state("a-run", "running", "rollout", {**FACTS, "evaluated_at": 52.0})
    assert "panel success 0.656 · training" in followed(store, Outcome("completed", ""))


def test_a_run_that_failed_says_why(store):
    with pytest.raises(RunFailedError, match="run a-run ended as failed: the reason"):
        followed(store, Outcome("failed", "the reason"))
