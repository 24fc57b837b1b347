"""Incomplete trajectories in baselines: how far they move the mean, by hand, and which of them break the rule."""

from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.evidence.audit.baselines import incomplete_in_baselines
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import NO_RESPONSE, UNKNOWN_FINISH

from .conftest import Ask, played_turns
from .test_audits import changed

RETURNS = {"g0000-0": 4.0, "g0000-1": 2.0, "g0000-2": 0.0, "g0000-3": -2.0}


def one_group() -> pa.Table:
    return played_turns(num_groups=1)


def paid(turns: pa.Table) -> pa.Table:
    rewards = compute_rewards(turns, RewardConfig())
    return changed(rewards, lambda _, row: {"trajectory_return": RETURNS[row["trajectory_id"]]})


def last_turn_of(turns: pa.Table, name: str, **columns: Any) -> pa.Table:
    last = max(row["turn"] for row in turns.to_pylist() if row["trajectory_id"] == name)
    return changed(turns, lambda _, row: columns if (row["trajectory_id"], row["turn"]) == (name, last) else {})


def test_whole_trajectories_alone_are_sound(tables: Ask) -> None:
    turns = one_group()
    finding = incomplete_in_baselines(tables(turns=turns, rewards=paid(turns)))
    assert finding.severity == "note"
    assert finding.summary == "All 1 groups count only whole trajectories; 0 incomplete ones are left out."
    (row,) = finding.table.to_pylist()
    assert (row["groups"], row["trajectories"], row["counted"]) == (1, 4, 0)


def test_excluded_error_is_sound(tables: Ask) -> None:
    turns = last_turn_of(one_group(), "g0000-3", status="env_error")
    rewards = paid(turns)
    selection = select_groups(turns, rewards, FilterConfig(keep=1.0))
    finding = incomplete_in_baselines(tables(turns=turns, rewards=rewards, selection=selection))
    assert (finding.severity, finding.summary[-35:]) == ("note", "trajectories; 1 incomplete ones are left out."[-35:])


def test_counted_full_context_is_a_warning(tables: Ask) -> None:
    turns = last_turn_of(one_group(), "g0000-3", **NO_RESPONSE, status="truncated", truncated=True)
    finding = incomplete_in_baselines(tables(turns=turns, rewards=paid(turns)))
    assert finding.severity == "warning"
    (row,) = finding.table.to_pylist()
    # returns 4, 2, 0, -2: mean 1, std sqrt(5); without the last: mean 2, std sqrt(8 / 3)
    assert (row["valid"], row["incomplete"], row["statuses"]) == (4, 1, "truncated")
    assert (row["mean"], row["mean_without"], row["mean_moves"]) == (1.0, 2.0, 1.0)
    assert (row["std"], row["std_without"]) == (pytest.approx(2.2361), pytest.approx(1.633))
    assert (row["example"], row["fault"]) == ("g0000-3", None)
    assert finding.summary == (
        "1 of 1 groups count incomplete trajectories (1 in all); without them their mean return moves by up to 1."
    )


@pytest.mark.parametrize("status", ["env_error", "timeout"])
def test_counted_error_is_a_fault(tables: Ask, status: str) -> None:
    sound = one_group()
    turns = last_turn_of(sound, "g0000-0", status=status)  # after its reward was computed
    finding = incomplete_in_baselines(tables(turns=turns, rewards=paid(sound)))
    assert finding.severity == "fault"
    (row,) = finding.table.to_pylist()
    assert (row["statuses"], row["mean_moves"]) == (status, -1.0)
    assert "of 1 against the rule" in finding.summary


def test_filter_counting_more_than_rewards_faults(tables: Ask) -> None:
    sound = one_group()
    turns = last_turn_of(sound, "g0000-0", status="timeout")
    selection = select_groups(sound, paid(sound), FilterConfig(keep=1.0))
    finding = incomplete_in_baselines(tables(turns=turns, rewards=paid(turns), selection=selection))
    assert finding.severity == "fault"
    assert finding.table["fault"].to_pylist() == ["the filter counted 4 trajectories, the rewards 3"]


def test_import_states_what_source_lacks(tables: Ask) -> None:
    turns = changed(one_group(), lambda *_: {"finish_reason": UNKNOWN_FINISH})
    assert incomplete_in_baselines(tables(turns=turns)).summary.startswith("No rewards are stored")
    finding = incomplete_in_baselines(tables(turns=turns, rewards=paid(turns)))
    assert finding.severity == "note"
    assert "For 4 imported trajectories, the source does not say why they ended." in finding.summary
