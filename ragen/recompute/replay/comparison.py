"""Two updates on the same rollout as numbers: what each was trained on, and where it went.

    selection, samples, gradients, weights of base and branch -> name -> value

"Base" is what the run did, "branch" what the replay did. A number that does not exist (a cosine with a vector of zeros,
a share of nothing) is absent.
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
"""Of the metrics `update/...`: shown of both sides. Those of `validity_before` say how far the policy that an update
found is from the one that sampled; the base's is the same policy, the branch's moves away from it."""


def compare_groups(base: pa.Table, branch: pa.Table) -> dict[str, float]:
    """Which groups the two filters kept.

    Args:
        base: Dataset `selection` of a rollout.
        branch: Another of the same rollout.

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
    """Whether the two updates agree on which trajectories to make more likely.

    Args:
        base: Dataset `samples` of an update.
        branch: Of another update on the same rollout.

    Returns:
        `num_shared_trajectories`: those that both were trained on. `advantage_sign_flips`: the share of these whose
        advantage (mean over their tokens) is above 0 in one and below 0 in the other; an advantage of 0 flips nothing.
    """
    columns = ["trajectory_id", "advantage"]
    shared = pl.DataFrame(base.select(columns)).join(pl.DataFrame(branch.select(columns)), on="trajectory_id")
    values: dict[str, float] = {"num_shared_trajectories": shared.height}
    if shared.height:
        signs = shared["advantage"].sign() * shared["advantage_right"].sign()
        values["advantage_sign_flips"] = float((signs < 0).sum()) / shared.height
    return values


def compare_directions(name: str, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Two vectors that are given in pieces, as `<name>_cosine` and `<name>_norm_ratio`.

        cosine = <base, branch> / (|base| |branch|)        norm_ratio = |branch| / |base|

    Args:
        name: What the vectors are.
        pairs: Pieces (base, branch) of equal shape, in any order. Sums are in float64.

    Returns:
        The cosine in [-1, 1]; absent where either vector is 0. The ratio is absent where the base's is.
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
    """Metrics of the two updates under `base/<name>` and `branch/<name>`: those of `SHOWN_METRICS` that exist.

    Args:
        base: Metrics of an update by full name.
        branch: Those of the other.
    """
    return {
        f"{side}/{name}": metrics[f"update/{name}"]
        for name in SHOWN_METRICS
        for side, metrics in (("base", base), ("branch", branch))
        if f"update/{name}" in metrics
    }
