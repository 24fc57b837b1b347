"""Credit of turns in the format of the page, and the turn that decided."""

from typing import Any

import pytest

from starpo.ragen.evidence.report.credit import credit_of_turns, decided_at, own_estimator


def credit(turn: int, advantage: float, continuations: int = 8) -> dict[str, Any]:
    return {
        "trajectory_id": "t", "turn": turn, "advantage": advantage, "advantage_se": 1.0, "value": 2.0,
        "value_after": 3.0, "num_continuations": continuations,
    }  # fmt: skip


def estimate(name: str, value: float, quantity: str = "advantage") -> dict[str, Any]:
    return {"trajectory_id": "t", "turn": 0, "estimator": name, "quantity": quantity, "estimate": value}


def test_own_estimate_stands_first() -> None:
    estimates = [estimate("grpo", 1.0), estimate("critic", 7.0, "value"), estimate("gae", 2.0)]
    by_turn = credit_of_turns([credit(0, 1.0), credit(1, 2.0)], estimates, "gae")
    first = by_turn["t", 0]
    assert list(first["estimates"].items()) == [("gae", 2.0), ("grpo", 1.0)]
    assert (first["own"], first["critic"], first["after"]) == ("gae", 7.0, 3.0)
    second = by_turn["t", 1]
    assert (second["own"], second["critic"], second["estimates"]) == (None, None, {})


def test_most_continuations_are_shown() -> None:
    rows = [credit(0, 1.0, 8), credit(0, 2.0, 32), credit(0, 3.0, 4)]
    assert credit_of_turns(rows, [], "")["t", 0]["advantage"] == 2.0


@pytest.mark.parametrize(
    ("advantages", "success", "turn"),
    [
        ([-3.0, -5.0, 4.0], False, 1),
        ([-3.0, -5.0, 4.0], True, 2),
        ([-3.0, -3.0], False, 0),
        ([-1.9, 1.9], False, None),
        ([-1.9, 1.9], True, None),
        ([-3.0], None, None),
        ([], False, None),
    ],
)
def test_decided_where_interval_excludes_zero(advantages, success, turn) -> None:
    """Standard errors are 1, so that 1.9 may be 0."""
    by_turn = {n: {"advantage": advantage, "error": 1.0} for n, advantage in enumerate(advantages)}
    assert decided_at(by_turn, success=success) == turn


def test_settings_of_other_release_name_nothing() -> None:
    assert own_estimator("mine", {"nonsense": 1}, 0) == ""
