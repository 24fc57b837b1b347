"""Each part of a mixture is measured over its own trajectories and groups."""

import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.evidence.report.curves import main_panels, other_panels
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.metrics.iteration import metrics_by_tag, rollout_metrics
from starpo.ragen.learning.metrics.table import BY_TAG
from starpo.ragen.learning.reward.compute import compute_rewards


@pytest.fixture(scope="module")
def turns(make_turns):
    """Two groups of the lake, returns 0 1 and 0 0; one of the arms, returns 0 4. A positive return is a success."""
    groups = {"g0": ("lake", [0.0, 1.0]), "g1": ("lake", [0.0, 0.0]), "g2": ("arms", [0.0, 4.0])}
    return make_turns(
        [
            {"group_id": group, "env": env, "env_seed": n, "member": m, "action_rewards": [paid], "success": paid > 0}
            for n, (group, (env, returns)) in enumerate(groups.items())
            for m, paid in enumerate(returns)
        ]
    )


@pytest.fixture(scope="module")
def measured(turns):
    rewards = compute_rewards(turns, RewardConfig())
    selection = select_groups(turns, rewards, FilterConfig(strategy="none"))
    return metrics_by_tag(turns, rewards, selection, ["lake", "arms", "none"])


def test_part_metrics_cover_own_rows(measured):
    """Lake: 1 of 4 succeeds, stds 1/2 and 0. Arms: 1 of 2 succeeds, std 2."""
    expected = {
        "rollout/success_rate/lake": 0.25,
        "rollout/success_rate/arms": 0.5,
        "reward/return_mean/lake": 0.25,
        "reward/return_mean/arms": 2.0,
        "reward/in_group_std/lake": 0.25,
        "reward/in_group_std/arms": 2.0,
        "filter/num_kept/lake": 1.0,
        "filter/kept_share/lake": 0.5,
        "filter/kept_share/arms": 1.0,
    }
    assert {name: measured[name] for name in expected} == expected
    assert {name.rpartition("/")[0] for name in measured} == set(BY_TAG)


def test_unplayed_part_has_only_counts(measured):
    assert {name: value for name, value in measured.items() if name.endswith("/none")} == {"filter/num_kept/none": 0.0}


def test_part_curves_share_whole_panel(turns, measured):
    values = {name: value for name, value in (rollout_metrics(turns) | measured).items() if not name.endswith("/none")}
    series = {name: {0: value, 1: value} for name, value in values.items()}
    panel = next(panel for panel in main_panels(series) if panel.title == "Training success")
    assert [line.label for line in panel.lines] == ["all", "arms", "lake"]
    assert not [panel for panel in other_panels(series) if panel.title.startswith("rollout/success_rate")]
    assert [panel.title for panel in other_panels(series) if "kept_share" in panel.title] == [
        "filter/kept_share/arms",
        "filter/kept_share/lake",
    ]
