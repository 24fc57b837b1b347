"""Rank correlations computed by hand, and the conclusions that their intervals allow."""

import numpy as np
import pytest

from starpo.ragen.studies.ranks import order_of_cells


@pytest.mark.parametrize(
    ("successes", "rho"),
    [
        ([0.1, 0.2, 0.9], 1.0),
        ([0.3, 0.2, 0.1], -1.0),
        ([0.1, 0.3, 0.2], 0.5),  # 1 - 6 * (0 + 1 + 1) / (3 * 8)
        ([0.1, 0.1, 0.2], np.sqrt(3) / 2),  # ranks 0.5, 0.5, 2: covariance 1.5, norms sqrt(2) and sqrt(1.5)
    ],
)
def test_rho_by_hand(successes: list[float], rho: float) -> None:
    correlation = order_of_cells(np.array(successes)[:, None, None])
    assert correlation is not None
    assert correlation.rho == pytest.approx(rho)


def rates(*shares: float) -> np.ndarray:
    """One cell per share, three seeds, 40 prompts of which that share succeeds. [cells, seeds, prompts]"""
    return np.array([[[float(prompt < share * 40) for prompt in range(40)]] * 3 for share in shares])


def test_distant_cells_keep_their_order() -> None:
    correlation = order_of_cells(rates(0.1, 0.4, 0.6, 0.9))
    assert correlation is not None
    assert (correlation.rho, correlation.num) == (pytest.approx(1.0), 4)
    assert correlation.low > 0.5
    reverse = order_of_cells(rates(0.9, 0.6, 0.4, 0.1))
    assert reverse is not None
    assert reverse.high < -0.5


def test_equal_cells_share_a_rank() -> None:
    """Ranks 0.5, 0.5, 2, 3 in every resample: covariance 4.5, norms sqrt(5) and sqrt(4.5)."""
    correlation = order_of_cells(rates(0.25, 0.25, 0.5, 0.75))
    assert correlation is not None
    assert (correlation.rho, correlation.low, correlation.high) == pytest.approx((np.sqrt(0.9),) * 3)
    assert order_of_cells(np.array([[[0.1, 0.2, 0.3]], [[0.3, 0.2, 0.1]]])) is None  # their sums round differently


def test_unmeasured_cell_leaves_no_order() -> None:
    assert order_of_cells(np.stack([*rates(0.1, 0.9), np.full((3, 40), np.nan)])) is None
    assert order_of_cells(rates(0.5, 0.5)) is None


def test_missing_prompts_not_counted_for_cell() -> None:
    cells = rates(0.25, 0.5, 0.45)
    cells[2, :, 30:] = np.nan  # 18 of 30 succeed, more than a half
    correlation = order_of_cells(cells)
    assert correlation is not None
    assert (correlation.rho, correlation.high) == pytest.approx((1.0, 1.0))
