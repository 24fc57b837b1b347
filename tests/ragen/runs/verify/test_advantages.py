"""Advantages of `samples` against those that stored rewards give."""

import pyarrow as pa
import pytest

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.learners.data.trajectories import Trajectory, assemble
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.runs.verify.advantages import advantage_differences
from starpo.ragen.runs.verify.stored_checks import has_arithmetic_advantages

GRPO = UpdateConfig(advantage="grpo")


@pytest.fixture
def trained(play_rollout) -> tuple[list[Trajectory], pa.Table]:
    """Trajectories of an update, and its samples: GRPO's advantage is the return minus the mean of the group."""
    settings = SokobanSettings(generator="distance", min_solution=1, max_solution=3)
    turns = play_rollout(settings, AgentConfig(prompt="state")).turns
    rewards = compute_rewards(turns, RewardConfig())
    trajectories = assemble(turns, rewards, select_groups(turns, rewards, FilterConfig(keep=0.7)))
    groups: dict[str, list[float]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory.normalised_return)
    rows = [
        {
            "trajectory_id": t.trajectory_id,
            "group_id": t.group_id,
            "trajectory_return": t.trajectory_return,
            "advantage": t.normalised_return - sum(groups[t.group_id]) / len(groups[t.group_id]),
        }
        for t in trajectories
        if t.num_response_tokens
    ]
    assert len({row["advantage"] for row in rows}) > 2
    return trajectories, pa.Table.from_pylist(rows)


def test_those_that_the_rewards_give_agree(trained) -> None:
    trajectories, samples = trained
    assert list(advantage_differences(trajectories, 1.0, GRPO, samples)) == []


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("advantage", lambda value: -value),
        ("advantage", lambda value: value * 1.001),
        ("trajectory_return", lambda value: value + 1e-9),
        ("group_id", lambda value: value + "x"),
    ],
)
def test_others_are_found(trained, column, change) -> None:
    trajectories, samples = trained
    rows = samples.to_pylist()
    place = max(range(len(rows)), key=lambda number: abs(rows[number]["advantage"]))
    rows[place][column] = change(rows[place][column])
    (difference,) = advantage_differences(trajectories, 1.0, GRPO, pa.Table.from_pylist(rows))
    assert difference.startswith(f"trajectory '{rows[place]['trajectory_id']}': {column} is ")


def test_policy_dependent_advantages_need_recomputing() -> None:
    assert has_arithmetic_advantages(GRPO)
    assert has_arithmetic_advantages(UpdateConfig(advantage="grpo", kl_coefficient=0.1))
    for settings in (
        {"advantage": "gae"},
        {"advantage": "istar"},
        {"advantage": "otb"},
        {"advantage": "grpo", "advantage_on": "answer"},
        {"advantage": "grpo", "kl_coefficient": 0.1, "kl_placement": "reward"},
    ):
        assert not has_arithmetic_advantages(UpdateConfig(**settings))
