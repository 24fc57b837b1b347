"""Estimators beside the truth: a small table by hand, and the kinds of turns."""

import numpy as np
import pyarrow as pa
import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.metrics.credit_comparison import HALVES, RANDOM, CreditComparison, compare_credit, turn_kinds
from tests.ragen.learning.metrics.credit_tables import CREDITS, GROUPS, MEMBERS, PLAYED, ROWS, TURNS, estimates


@pytest.fixture(scope="module")
def comparison() -> CreditComparison:
    return compare_credit(
        CREDITS,
        estimates(
            opposite=lambda row: -row["advantage"],
            first_turn=lambda row: row["advantage"] if row["turn"] == 0 else None,
            truth=lambda row: 3 * row["advantage"],
            trajectory=lambda row: row["group_id"] == "g0",
            critic=lambda row: 2 * row["value"] + 1,
        ),
        PLAYED,
    )


def test_truth_agrees_with_itself(comparison) -> None:
    by_name = {one.estimator: one for one in comparison.agreements}
    assert next(one.estimator for one in comparison.agreements) in ("truth", "first_turn")
    assert [one.estimator for one in comparison.agreements][-2:] == [RANDOM, HALVES]
    for name, sign in (("truth", 1), ("opposite", -1)):
        one = by_name[name]
        assert (one.within.value, one.overall.value) == pytest.approx((sign, sign))
        assert one.right_signs.value == (sign > 0)
        assert one.finds_decisive.value == 1.0
        assert one.num_turns == comparison.num_turns == GROUPS * MEMBERS * TURNS
    noise, square = (np.mean([row[name] ** 2 for row in ROWS]) for name in ("advantage_se", "advantage"))
    assert by_name["truth"].error_share.value == pytest.approx(-noise / (square - noise))
    assert by_name["opposite"].error_share.value == pytest.approx(1)
    assert comparison.noise_share == pytest.approx(noise / square)


def test_estimate_of_trajectories_has_no_order(comparison) -> None:
    one = next(one for one in comparison.agreements if one.estimator == "trajectory")
    assert one.within.value == 0.0
    assert 0 < one.num_trajectories <= GROUPS * MEMBERS


def test_turns_without_estimate_are_left_out(comparison) -> None:
    one = next(one for one in comparison.agreements if one.estimator == "first_turn")
    assert one.num_turns == GROUPS * MEMBERS
    assert one.within is None
    assert one.num_trajectories == 0
    assert "last" not in one.parts
    assert one.parts["first"].square_share.value == 1.0


def test_halves_are_noisier_than_whole(comparison) -> None:
    half = comparison.agreements[-1]
    assert 0.5 < half.overall.value < comparison.attainable_overall.value < 1
    by_hand = [
        np.mean(row["returns"][0::2]) - row["reward"] for row in ROWS if row["turn"] == TURNS - 1
    ], [np.mean(row["returns"][1::2]) - row["reward"] for row in ROWS if row["turn"] == TURNS - 1]  # fmt: skip
    assert half.parts["last"].rank_correlation.value == pytest.approx(_spearman(*by_hand))


def test_critic_calibration_by_hand(comparison) -> None:
    """Values are 2 V + 1: slope 1/2, and the mean is off by mean V + 1."""
    assert comparison.calibration.slope.value == pytest.approx(0.5)
    assert comparison.calibration.offset.value == pytest.approx(np.mean([row["value"] for row in ROWS]) + 1)
    assert comparison.calibration.correlation.value > 1  # of its own noise


def test_parts_share_the_square(comparison) -> None:
    kinds = {name for name in comparison.square_shares if name not in ("first", "middle", "last")}
    for names in (kinds, {"first", "middle", "last"}):
        assert sum(comparison.square_shares[name] for name in names) == pytest.approx(1)


def test_kinds_in_their_order() -> None:
    """The upper quarter of |A| begins at 1: the first is beyond its error, the second is not."""
    kinds = turn_kinds(
        np.array([-4.0, 1.0, 0.0, 0.5, 0.0]), np.array([1.0, 1.0, 1.0, 1.0, 1.0]),
        np.array([0.0, 0.0, 1.0, 0.5, 0.5]), np.array([0.99, 0.99, 0.99, 0.99, 0.5]),
    )  # fmt: skip
    assert kinds.tolist() == ["decisive", "futile", "safe", "forced", "other"]


def test_same_tables_compare_alike() -> None:
    given = CREDITS, estimates(truth=lambda row: row["advantage"]), PLAYED
    assert compare_credit(*given) == compare_credit(*given)


def test_nothing_in_common_is_refused() -> None:
    other = estimates(truth=lambda row: row["advantage"])
    elsewhere = pa.Table.from_pylist([row | {"trajectory_id": "elsewhere"} for row in other.to_pylist()])
    with pytest.raises(ConfigError, match="none of the 96 turns"):
        compare_credit(CREDITS, elsewhere, PLAYED)


def _spearman(x: list[float], t: list[float]) -> float:
    def ranks(values: list[float]) -> np.ndarray:
        return np.array([sum(b < a for b in values) + sum(b == a for b in values) / 2 for a in np.round(values, 9)])

    return float(np.corrcoef(ranks(x), ranks(t))[0, 1])
