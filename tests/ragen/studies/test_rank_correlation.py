import numpy as np
import pytest

from starpo.ragen.studies.rank_correlation import rank_correlation


def test_by_hand() -> None:
    assert rank_correlation([1, 2, 30], [0.1, 0.2, 0.3]).rho == pytest.approx(1.0)
    assert rank_correlation([1, 2, 30], [0.3, 0.2, 0.1]).rho == pytest.approx(-1.0)
    # ranks 1.5, 1.5, 3 and 1, 2, 3: (0.5 + 0 + 1) / sqrt(1.5 * 2)
    assert rank_correlation([1, 1, 2], [1, 2, 3]).rho == pytest.approx(1.5 / 3**0.5)


def test_the_interval_holds_it_and_narrows_with_more_pairs() -> None:
    rng = np.random.default_rng(0)

    def found(num):
        ones = rng.normal(size=num)
        return rank_correlation(ones, ones + rng.normal(size=num))

    few, many = found(12), found(60)
    for one in (few, many):
        assert -1 <= one.low <= one.rho <= one.high <= 1
    assert many.high - many.low < few.high - few.low
    assert (few.num, many.num) == (12, 60)


@pytest.mark.parametrize(
    ("ones", "others"), [([1, 2], [1, 2]), ([], []), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [0, 0, 0])]
)
def test_without_an_order_there_is_none(ones, others) -> None:
    assert rank_correlation(ones, others) is None


def test_it_is_the_same_again() -> None:
    pairs = [3, 1, 4, 1, 5], [2, 7, 1, 8, 2]
    assert rank_correlation(*pairs) == rank_correlation(*pairs)
