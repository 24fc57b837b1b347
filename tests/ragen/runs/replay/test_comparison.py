import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from starpo.ragen.runs.replay.comparison import (
    SHOWN_METRICS,
    beside,
    compare_advantages,
    compare_directions,
    compare_groups,
)

VECTORS = arrays(np.float32, 6, elements=st.floats(-8, 8, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3))


def selection(**kept: bool) -> pa.Table:
    return pa.table({"group_id": list(kept), "kept": list(kept.values())})


def samples(**advantages: float) -> pa.Table:
    return pa.table({"trajectory_id": list(advantages), "advantage": list(advantages.values())})


def test_groups_counted_by_keeping_branch() -> None:
    base, branch = selection(a=True, b=True, c=False, d=False), selection(d=False, c=True, b=True, a=False)
    assert compare_groups(base, branch) == {
        "groups_kept_by_both": 1,
        "groups_kept_by_base_only": 1,
        "groups_kept_by_branch_only": 1,
    }


def test_sign_flips_share_of_common_trajectories() -> None:
    base, branch = samples(a=1.0, b=-1.0, c=2.0, d=1.0, e=5.0), samples(f=-5.0, d=0.0, c=-0.1, b=-9.0, a=3.0)
    # shared: a, b, c, d; only c has opposite signs, and the 0 of d is no sign
    assert compare_advantages(base, branch) == {"num_shared_trajectories": 4, "advantage_sign_flips": 0.25}


def test_disjoint_groups_have_no_share() -> None:
    assert compare_advantages(samples(a=1.0), samples(b=1.0)) == {"num_shared_trajectories": 0}


def test_directions_by_hand() -> None:
    # base (3, 4, 0), branch (0, 6, 8): product 24, norms 5 and 10
    pairs = [(np.array([3.0, 4.0]), np.array([0.0, 6.0])), (np.array([[0.0]]), np.array([[8.0]]))]
    assert compare_directions("x", pairs) == pytest.approx({"x_cosine": 0.48, "x_norm_ratio": 2.0})


def test_zero_vector_has_no_direction() -> None:
    zeros, ones = np.zeros(3), np.ones(3)
    assert compare_directions("x", [(zeros, ones)]) == {}
    assert compare_directions("x", [(ones, zeros)]) == {"x_norm_ratio": 0.0}
    assert compare_directions("x", [(ones / 9, ones / 9)]) == pytest.approx({"x_cosine": 1.0, "x_norm_ratio": 1.0})


@given(VECTORS, VECTORS, st.integers(0, 6), st.floats(0.01, 100))
def test_cosine_ignores_pieces_and_lengths(base, branch, cut, scale) -> None:
    assume(base.any() and branch.any())
    whole = compare_directions("x", [(base, branch)])
    pieces = compare_directions("x", [(base[cut:], branch[cut:]), (base[:cut], branch[:cut])])
    assert pieces == pytest.approx(whole)
    assert -1 <= whole["x_cosine"] <= 1
    swapped = compare_directions("x", [(branch.astype(np.float64) * scale, base)])
    assert swapped["x_cosine"] == pytest.approx(whole["x_cosine"], abs=1e-9)
    assert compare_directions("x", [(base, base)]) == pytest.approx({"x_cosine": 1, "x_norm_ratio": 1})
    assert compare_directions("x", [(base, -base)])["x_cosine"] == pytest.approx(-1)


def test_metrics_of_both_side_by_side() -> None:
    assert beside(
        {"update/entropy": 1.0, "update/other": 2.0}, {"update/entropy": 3.0, "update/kl_behaviour": 4.0}
    ) == {
        "base/entropy": 1.0,
        "branch/entropy": 3.0,
        "branch/kl_behaviour": 4.0,
    }
    assert "entropy" in SHOWN_METRICS
