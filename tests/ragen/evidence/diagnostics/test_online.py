"""Online-k: updates grouped by the earlier uses of their rollout, from the records of a run."""

import pytest

from starpo.ragen.evidence.diagnostics.online import by_reuse


def reuse_rows(rollouts: str, kls: list[float | None], has_siblings: bool = False) -> list[dict[str, float]]:
    """Aggregate a run: for each iteration, a letter that names its rollout, and the KL before its update.

    A KL of None means that no group was kept.
    """
    recorded, metrics = {}, {}
    for iteration, (rollout, kl) in enumerate(zip(rollouts, kls, strict=True)):
        beside = {"siblings": rollout} if has_siblings and rollout not in rollouts[:iteration] else {}
        recorded[iteration] = {"rollout": {**beside, "turns": rollout}} | ({} if kl is None else {"update": {}})
        metrics[iteration] = {} if kl is None else {"update/validity_before/kl": kl, "update/clip_fraction": 0.5}
    return by_reuse(recorded, metrics)


def test_updates_grouped_by_earlier_rollout_uses() -> None:
    rows = reuse_rows("aaabbcccd", [0, 0.1, 0.2, 0, 0.4, 0, 0.3, 0.4, 0])
    assert [(row["reuse"], row["num_updates"]) for row in rows] == [(0, 4), (1, 3), (2, 2)]
    assert rows[1]["kl"] == pytest.approx((0.1 + 0.4 + 0.3) / 3)
    assert rows[1]["clip_fraction"] == 0.5


def test_search_stands_beside_the_first_use() -> None:
    assert [row["num_updates"] for row in reuse_rows("aaab", [0, 0.1, 0.2, 0], has_siblings=True)] == [2, 1, 1]
