"""Two updates on the same rollout compared in numbers: what each was trained on, and in which direction it moved.

    selection, samples, gradients, weights of base and branch -> name -> value

"Base" is the recorded run, "branch" the replay. Undefined numbers (a cosine with a zero vector, a share of nothing) are
absent.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl
import pyarrow as pa

SHOWN_METRICS = (
    "kl_behaviour",
    "clip_fraction",
    "entropy",
    "validity_before/ratio_q01",
    "validity_before/ratio_q50",
    "validity_before/ratio_q99",
    "validity_before/effective_sample_size_tokens",
    "validity_before/effective_sample_size_trajectories",
    "validity_before/kl",
)
"""Metrics `update/...` shown for both sides. `validity_before` is the distance from the behaviour policy to the policy
that an update starts from: for the base they are the same policy, while the branch's policy moves away."""


def compare_groups(base: pa.Table, branch: pa.Table) -> dict[str, float]:
    """Count the groups that the two filters kept.

    Args:
        base: Dataset `selection` of a rollout.
        branch: Another `selection` of the same rollout.

    Returns:
        Counts of groups: `groups_kept_by_both`, `groups_kept_by_base_only`, `groups_kept_by_branch_only`.
    """
    kept_by_base, kept_by_branch = (
        set(selection.filter(selection["kept"])["group_id"].to_pylist()) for selection in (base, branch)
    )
    return {
        "groups_kept_by_both": len(kept_by_base & kept_by_branch),
        "groups_kept_by_base_only": len(kept_by_base - kept_by_branch),
        "groups_kept_by_branch_only": len(kept_by_branch - kept_by_base),
    }


def compare_advantages(base: pa.Table, branch: pa.Table) -> dict[str, float]:
    """Measure whether the two updates agree on which trajectories to make more likely.

    Args:
        base: Dataset `samples` of an update.
        branch: Dataset `samples` of another update on the same rollout.

    Returns:
        `num_shared_trajectories`: number of trajectories in both updates. `advantage_sign_flips`: share of these whose
        advantage (mean over tokens) is positive in one and negative in the other; an advantage of 0 is no flip.
    """
    columns = ["trajectory_id", "advantage"]
    shared = pl.DataFrame(base.select(columns)).join(pl.DataFrame(branch.select(columns)), on="trajectory_id")
    values: dict[str, float] = {"num_shared_trajectories": shared.height}
    if shared.height:
        signs = shared["advantage"].sign() * shared["advantage_right"].sign()
        values["advantage_sign_flips"] = float((signs < 0).sum()) / shared.height
    return values


def compare_directions(name: str, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Compare two vectors given in pieces: `<name>_cosine` and `<name>_norm_ratio`.

        cosine = <base, branch> / (|base| |branch|)        norm_ratio = |branch| / |base|

    Args:
        name: Name of the vectors.
        pairs: Pieces (base, branch) of equal shape, in any order. Sums are in float64.

    Returns:
        The cosine in [-1, 1], absent if either vector is 0; the norm ratio, absent if the base's vector is 0.
    """
    product = base_square = branch_square = 0.0
    for base, branch in pairs:
        assert base.shape == branch.shape, f"{name}: {base.shape} and {branch.shape}"
        base, branch = base.astype(np.float64).ravel(), branch.astype(np.float64).ravel()
        product += float(base @ branch)
        base_square += float(base @ base)
        branch_square += float(branch @ branch)
    values: dict[str, float] = {}
    base_norm, branch_norm = math.sqrt(base_square), math.sqrt(branch_square)
    if base_norm > 0 and branch_norm > 0:
        values[f"{name}_cosine"] = min(1.0, max(-1.0, product / base_norm / branch_norm))
    if base_norm > 0:
        values[f"{name}_norm_ratio"] = branch_norm / base_norm
    return values


def beside(base: Mapping[str, float], branch: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of both updates as `base/<name>` and `branch/<name>`, for those in `SHOWN_METRICS` that exist.

    Args:
        base: Metrics of an update by full name.
        branch: Metrics of the other update.
    """
    return {
        f"{side}/{name}": metrics[f"update/{name}"]
        for name in SHOWN_METRICS
        for side, metrics in (("base", base), ("branch", branch))
        if f"update/{name}" in metrics
    }
