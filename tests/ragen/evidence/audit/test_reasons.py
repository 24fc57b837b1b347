"""A row of `selection` states why its group was kept or dropped, for every strategy, metric and direction."""

from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.evidence.audit.audits import run_audits
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import TURNS

from .conftest import Ask, played_turns

METRICS = ("std", "mean", "entropy", "length")


def configs() -> list[FilterConfig]:
    made = []
    for strategy in FILTERS:
        for metric in METRICS:
            for should_keep_largest in (True, False):
                if strategy in ("top_p_linear", "min_p") and metric == "mean":
                    continue
                made.append(
                    FilterConfig(
                        strategy=strategy,
                        keep=0.5,
                        keep_count=2 if strategy == "top_k" else None,
                        metric=metric,  # type: ignore[arg-type]
                        should_keep_largest=should_keep_largest,
                    )
                )
    return made


def paid_turns(returns: list[list[float | None]]) -> pa.Table:
    """Dataset `turns` of one-turn trajectories with these returns, by group; None for a failed environment."""
    template = played_turns(num_groups=1).to_pylist()[0]
    rows: list[dict[str, Any]] = []
    for group, members in enumerate(returns):
        for member, value in enumerate(members):
            tokens = 1 + (group + member) % 3
            rows.append(
                template
                | {
                    "trajectory_id": f"g{group}-{member}",
                    "group_id": f"g{group}",
                    "member": member,
                    "executed_actions": template["executed_actions"][:1],
                    "action_rewards": [value or 0.0],
                    "action_effective": [True],
                    "response_ids": [1] * tokens,
                    "behaviour_logprobs": [-0.25] * tokens,
                    "status": "env_error" if value is None else "ok",
                    "terminated": True,
                    "truncated": False,
                }
            )
    return pa.Table.from_pylist(rows, schema=TURNS.schema)


RETURNS: list[list[float | None]] = [[1.0, 3.0], [2.0, 2.0], [None, None], [0.0, 9.0], [None, 4.0], [5.0, 6.0]]


@pytest.mark.ci
@pytest.mark.parametrize("config", configs(), ids=lambda c: f"{c.strategy}-{c.metric}-{c.should_keep_largest}")
def test_reason_names_the_deciding_rule(config: FilterConfig, tables: Ask) -> None:
    turns = paid_turns(RETURNS)
    selection = select_groups(turns, compute_rewards(turns, RewardConfig()), config)
    rows = {row["group_id"]: row for row in selection.to_pylist()}
    num_kept = sum(row["kept"] for row in rows.values())
    assert 0 < num_kept < len(rows)
    for row in rows.values():
        assert row["reason"].startswith("kept: " if row["kept"] else "dropped: ")
    assert rows["g1"]["reason"] == "dropped: zero variance, all 2 valid returns are 2"
    assert rows["g2"]["reason"] == "dropped: no valid trajectory, all 2 ended in an error"
    assert rows["g4"]["reason"] == "dropped: zero variance, all 1 valid returns are 4"
    for name in ("g0", "g3", "g5"):
        row = rows[name]
        assert f"number {row['rank'] + 1} of 3 by {config.metric} {row['score']:.4g}" in row["reason"]
        assert ("(smallest first)" in row["reason"]) == (not config.should_keep_largest)
        assert f"keeps {num_kept} of 6 groups" in row["reason"]
        rule = {"none": "no filter", "top_k": "top_k with keep_count = 2"}.get(config.strategy)
        assert (rule or f"{config.strategy} with keep = 0.5") in row["reason"]
    ((_, finding),) = run_audits(tables(selection=selection), ["groups"])
    (fates,) = finding.table.to_pylist()
    assert finding.severity == "note"
    counts = ("groups", "kept", "zero_variance", "no_valid_trajectory")
    assert tuple(fates[count] for count in counts) == (6, num_kept, 2, 1)
    assert fates["ranked_too_low"] == 3 - num_kept
