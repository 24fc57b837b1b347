import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.evaluation.significance import holm, sign_flip_test, states_needed


def test_sign_test_by_hand() -> None:
    # all of one size: 1 down, 4 up: 2 * (1 + 5) / 32
    assert sign_flip_test(np.array([0.5, 0.5, 0.0, -0.5, 0.5, 0.5])) == pytest.approx(12 / 32)
    assert sign_flip_test(np.zeros(3)) == 1.0


def enumerated(differences: list[float]) -> float:
    signs = np.array(list(itertools.product((-1, 1), repeat=len(differences))))
    return float((np.abs(signs @ differences) >= abs(sum(differences)) - 1e-9).mean())


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=9), st.sampled_from([0.1, 1 / 3, 0.125, 7.0]))
def test_flips_of_units_are_exact(units: list[int], unit: float) -> None:
    differences = [unit * number for number in units]
    assert sign_flip_test(np.array(differences)) == pytest.approx(enumerated(differences), abs=1e-12)


def test_flips_without_unit_are_drawn() -> None:
    differences = [3**0.5, -(2**0.5), -1.0, 2.0, 0.0, 5**0.5]
    p_value = sign_flip_test(np.array(differences))
    assert p_value == pytest.approx(enumerated(differences), abs=0.02)  # four standard errors
    assert p_value == sign_flip_test(np.array(differences))


def test_many_states_have_small_p() -> None:
    """40 states up by 1/4 or 1/2: only the two signs of all reach the sum."""
    assert sign_flip_test(np.array([0.25, 0.5] * 20)) == pytest.approx(2 / 2**40)


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.04: times 3, 2, 1 gives 0.03, 0.04, 0.04
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_between_none_and_bonferroni(p_values: list[float]) -> None:
    for p_value, adjusted in zip(p_values, holm(p_values), strict=True):
        assert p_value <= adjusted <= min(1.0, len(p_values) * p_value) + 1e-12


def test_states_needed_by_hand() -> None:
    # (1.95996 + 0.84162)^2 = 7.8489; error 0.02 of 256 states, difference 0.02: 256 * 7.8489 = 2009.3
    assert states_needed(256, 0.02, 0.02) == 2010
    assert states_needed(256, -0.02, 0.02) == 2010
    assert states_needed(256, 0.0, 0.02) is None
    assert states_needed(1, 0.5, float("inf")) is None


def test_needed_states_have_the_power() -> None:
    """Of 400 measurements with the number of states that one needs, 80% tell the difference apart."""
    random = np.random.default_rng(5)
    number = states_needed(100, 0.3, 1.0 / 10)  # standard deviation 1
    samples = random.normal(0.3, 1.0, (400, number))
    apart = samples.mean(axis=1) / (samples.std(axis=1, ddof=1) / np.sqrt(number)) > 1.96
    assert apart.mean() == pytest.approx(0.8, abs=0.07)
