"""Coverage of the intervals on simulated episodes; tests/benchmarks/test_coverage.py measures more of them."""

import pytest

from tests.simulated_episodes import Design, coverage


@pytest.mark.parametrize("num_episodes", [1, 4])
def test_intervals_hold_the_truth(num_episodes: int) -> None:
    """200 repetitions: 95% -+ four standard errors of 1.5 points."""
    measured = coverage(Design(num_states=32, num_episodes=num_episodes), 200)
    for name in ("success", "return", "success difference", "return difference"):
        assert 0.89 <= measured[name][0] <= 1.0, name
    if num_episodes > 1:
        assert measured["success, over episodes"][0] < 0.85  # clusters ignored


def test_pairs_halve_the_interval() -> None:
    """States that differ much, and that both policies play eight times."""
    measured = coverage(Design(num_states=64, num_episodes=8), 100)
    for name in ("success difference", "return difference"):
        assert 2 * measured[name][1] < measured[f"{name}, unpaired"][1]
        assert measured[name][0] >= 0.88
