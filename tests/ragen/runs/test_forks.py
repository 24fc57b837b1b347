"""Which run branches off from which, from the checkpoints that they share."""

import pytest

from starpo.flows.presets import preset
from starpo.ragen.runs import forks
from starpo.ragen.runs.forks import Branch, family
from starpo.ragen.store import Store


def record(store: Store, name: str, checkpoints: str, **settings: int) -> None:
    """Record a run with a checkpoint for every letter; the first is a warm start."""
    config = preset("smoke", {"filter.max_empty_iterations": settings.get("most", 5)})
    store.runs.create(name, flow="starpo", preset="smoke", config=config.model_dump(mode="json"))
    for number, letter in enumerate(checkpoints):
        stage = "update" if number else "warm_start"
        store.runs.record_stage(name, max(0, number - 1), stage, {"checkpoint": letter * 32})


def drawn(branch: Branch) -> object:
    forks = {fork.run.name: drawn(fork) for fork in branch.forks}
    return (branch.start, forks) if forks else branch.start


def test_fork_listed_under_closest_oldest_run(store: Store) -> None:
    record(store, "first", "abcd")
    record(store, "second", "abce")  # of the first, from 2
    record(store, "third", "abcef")  # of the second, from 3
    record(store, "fourth", "abc")  # the first and the second share as much with it: the older one
    record(store, "sibling", "axy")  # a warm start alone
    record(store, "none", "")
    roots = {root.run.name: drawn(root) for root in family(store)}
    assert roots == {"first": (None, {"second": (2, {"third": 3}), "fourth": 2}), "sibling": None, "none": None}


def test_settings_read_once_for_forks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record(store, "base", "abc")
    for number, letter in enumerate("defgh"):
        record(store, f"fork-{letter}", f"ab{letter}", most=number + 1)
    read: list[str] = []
    recorded = forks.recorded_config
    monkeypatch.setattr(forks, "recorded_config", lambda run, *of: read.append(run) or recorded(run, *of))
    [base] = family(store)
    assert [branch.changed for branch in base.forks] == [
        {"filter.max_empty_iterations": (5, most)} if most != 5 else {} for most in range(1, 6)
    ]
    assert sorted(read) == ["base", *(f"fork-{letter}" for letter in "defgh")]
