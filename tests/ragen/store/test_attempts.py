"""Names of what an iteration did several times."""

import pytest

from starpo.ragen.store.attempts import attempt_of, kind_of, numbered, of_kind, recorded_data

DATA = {"turns": "t0", "selection": "s0", "turns:2": "t2", "turns:1": "t1", "checkpoint": "c", "turns:4": "t4"}


@pytest.mark.parametrize(("attempt", "name"), [(0, "rollout"), (1, "rollout:1"), (12, "rollout:12")])
def test_a_number_is_read_as_it_is_written(attempt: int, name: str) -> None:
    assert numbered("rollout", attempt) == name
    assert (kind_of(name), attempt_of(name)) == ("rollout", attempt)


@pytest.mark.parametrize("name", ["evaluate:sokoban", "warm_start", "evaluate:²", "evaluate:-1"])
def test_other_parts_are_no_attempts(name: str) -> None:
    assert attempt_of(name) == 0


def test_keys_are_by_attempt_and_end_where_one_is_missing() -> None:
    assert of_kind(DATA, "turns") == ["t0", "t1", "t2"]
    assert of_kind(DATA, "rewards") == []


def test_what_a_record_names_are_the_roles_of_an_update() -> None:
    stages = {
        "rollout": {"turns": "t0"},
        "rollout:1": {"turns": "t1"},
        "reward": {"rewards": "r0"},
        "variance_filter": {"selection": "s0"},
        "diagnose": {"metrics": "m"},
        "evaluate:sokoban": {"episodes": "e", "metrics": "n"},
    }
    assert recorded_data(stages) == {"turns": "t0", "turns:1": "t1", "rewards": "r0", "selection": "s0"}
