"""Valid specifications of a sweep, and the checkpoints that they choose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.sweep import Sweep


@pytest.mark.parametrize(
    ("iterations", "chosen"),
    [
        ("last", [12]),
        ("all", list(range(13))),
        ("every:5", [0, 5, 10]),
        ("ends", [0, 12]),
        ([3, 30], [3]),
    ],
)
def test_checkpoints_of_a_live_run(iterations: str | list[int], chosen: list[int]) -> None:
    assert Sweep(name="s", iterations=iterations).chosen(range(13), last=14) == chosen


def test_every_nth_includes_available_last() -> None:
    assert Sweep(name="s", iterations="every:5").chosen(range(13), last=12) == [0, 5, 10, 12]


@given(st.sets(st.integers(0, 50)), st.integers(0, 50), st.sampled_from(["last", "all", "ends", "every:3", "every:7"]))
def test_chosen_iterations_exist_ascending(numbers: set[int], last: int, iterations: str) -> None:
    chosen = Sweep(name="s", iterations=iterations).chosen(numbers, last)
    assert set(chosen) <= numbers
    assert chosen == sorted(chosen)


@pytest.mark.parametrize("iterations", ["first", "every:0", "every:", [], [3, 3]])
def test_unknown_iterations_are_refused(iterations: object) -> None:
    with pytest.raises(
        ConfigError, match=r"mine: iterations.*expected 'last', 'all', 'ends', 'every:10' or different numbers"
    ):
        Sweep.make({"name": "s", "iterations": iterations}, "mine")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperatures": [0.5, 0.5]}, "0.5 appears twice"),
        ({"seeds": []}, "seeds"),
        ({"temperature": [0.5]}, r"no such setting \(did you mean 'temperatures'\?\)"),
        ({"name": "a/b"}, "name = 'a/b'"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sweep.make({"name": "s", **values}, "mine")
