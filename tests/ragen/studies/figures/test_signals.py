"""Which metric falls first, in synthetic runs that collapse."""

import pytest

from starpo.ragen.learning.control.collapse import GRADIENT, RETURN, REWARD_STD, SUCCESS
from starpo.ragen.studies.figures.signals import events, halfway, signal_verdicts


def falling(std_at: int, return_at: int, spike_at: int | None) -> dict[str, dict[int, float]]:
    """Metrics of sixty iterations: reward std drops at `std_at`, return and success at `return_at`; the norm spikes."""
    points = range(60)
    return {
        REWARD_STD: {at: 0.5 if at < std_at else 0.01 for at in points},
        RETURN: {at: 0.6 if at < return_at else -1.0 for at in points},
        GRADIENT: {at: 50.0 if at == spike_at else 1.0 for at in points},
        SUCCESS: {at: 0.6 if at < return_at else 0.0 for at in points},
    }


@pytest.fixture
def result(study):
    vanilla = {0: falling(15, 40, 38), 1: falling(20, 35, 30)}
    return study("signals", {"vanilla": vanilla, "fresh": {0: falling(99, 99, None)}}, fell={"vanilla": {0: 40, 1: 35}})


def test_std_falls_before_the_return(result) -> None:
    first, second, sound = events(result)
    assert (first.raised[GRADIENT], second.raised[GRADIENT]) == (38, 30)
    assert 15 < first.raised[REWARD_STD] < first.raised[RETURN]
    assert set(sound.raised.values()) == {None}
    std, spike = signal_verdicts(result).values()
    assert std == "shows (in 2 of 2 runs that fell, by 20 iterations (median))"  # 40 - 15 and 35 - 20
    assert spike == "shows (in 2 of 2 runs that fell)"


def test_halfway_down_is_from_the_peak_to_the_end() -> None:
    """From the peak 1.0 to the end 0.2, the centred mean stays below 0.6 from the drop on; the rise does not count."""
    falling = {2 * at: 0.5 if at < 5 else 1.0 if at < 20 else 0.2 for at in range(40)}
    assert halfway(falling) == 2 * 20
    assert halfway({at: float(at) for at in range(20)}) is None
    assert halfway({at: 1.0 - at for at in range(9)}) is None


def test_a_run_in_which_the_return_falls_first_speaks_against_it(study) -> None:
    late = study("signals", {"a": {0: falling(50, 20, None), 1: falling(15, 40, 55)}}, fell={"a": {0: 20, 1: 40}})
    std, spike = signal_verdicts(late).values()
    assert std.startswith("does not show (in 1 of 2 runs that fell")
    assert spike == "does not show (in 0 of 2 runs that fell)"  # one run has no spike, the other has one after the fall


def test_without_a_fall_nothing_can_show(study) -> None:
    sound = study("signals", {"a": {0: falling(99, 99, None)}}, fell={"a": {0: None}})
    assert set(signal_verdicts(sound).values()) == {"cannot show: no run fell"}
