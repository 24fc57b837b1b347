"""Sums in the reasoning are judged only where they stand alone."""

import pytest

from starpo.ragen.envs.sums import sums


@pytest.mark.parametrize(
    ("reasoning", "verdicts"),
    [
        ("3 * 4 = 12, 12 - 5 = 8", [True, False]),
        ("So 3 * 4 = 12.", [True]),
        ("7 - 9 = -2; (2+2=5)", [True, False]),
        ("8 / 4 = 2 - fine", [True]),
        ("4 / 0 = 1", [False]),
        ("3 + 4 = 7 + 5 = 12", [True]),  # only 7 + 5 = 12: the writer continues from the 7
    ],
)
def test_a_sum_of_two_numbers_is_judged(reasoning, verdicts):
    assert [claim.is_true for claim in sums(reasoning)] == verdicts


@pytest.mark.parametrize(
    "reasoning",
    [
        "3 + 4 + 5 = 12",
        "10 - 3 - 2 = 5",
        "2 × 3 + 4 = 10",
        r"2 \times 3 + 4 = 10",
        "2^3 + 1 = 9",
        "-3 + 5 = 2",
        "1/2 + 1/2 = 1",
        "(1 + 2) * 3 = 9",
        "3 + 5 = 4 * 2",
        "50 / 100 = 50%",
        "3,000 + 2 = 3,002",
        "0.5 * 4 = 2",
        "3 * 2.5 = 7.5",
    ],
)
def test_no_part_of_something_longer_is(reasoning):
    assert sums(reasoning) == []
