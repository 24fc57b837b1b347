"""Online-k: when a rollout is reused, and when it is replaced early."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.learning.control.rollout_use import EFFECTIVE_SAMPLE_SIZE, KL, RolloutUse

NEAR = {KL: 0.001, EFFECTIVE_SAMPLE_SIZE: 0.99}


def config(**settings: Any) -> StarPOConfig:
    from starpo.ragen.envs.variants import VARIANTS

    environment: EnvironmentConfig = VARIANTS["Sokoban"].settings
    return StarPOConfig(environment=environment, **settings)


@given(st.integers(1, 7), st.integers(1, 30))
def test_without_thresholds_every_kth_iteration_collects(online_k: int, iterations: int) -> None:
    use, collected = RolloutUse(config(online_k=online_k)), []
    for iteration in range(iterations):
        collected.append(use.should_collect(iteration))
        assert use.served({}) is None  # no metric is read
    assert collected == [iteration % online_k == 0 for iteration in range(iterations)]
    assert use.num_early == 0


@pytest.mark.parametrize(
    ("setting", "metrics", "words"),
    [
        ({"online_max_kl": 0.1}, {KL: 0.25}, "0.25 is above online_max_kl = 0.1"),
        (
            {"online_min_effective_sample_size": 0.9},
            {EFFECTIVE_SAMPLE_SIZE: 0.5},
            "0.5 is below online_min_effective_sample_size = 0.9",
        ),
    ],
)
def test_threshold_collects_early_and_counts(setting: Any, metrics: Any, words: str) -> None:
    use = RolloutUse(config(online_k=4, **setting))
    assert use.should_collect(0)
    assert use.served(NEAR) is None
    assert not use.should_collect(0)
    assert words in str(use.served({**NEAR, **metrics}))
    assert use.num_early == 0  # counted only when the next is collected: the run may end here
    assert use.should_collect(0)
    assert (use.num_early, use.num_updates, use.stale) == (1, 0, None)
    for _ in range(3):
        use.served(NEAR)
        assert not use.should_collect(0)  # four updates again, counted from the new rollout


def test_exhausted_rollout_is_not_early() -> None:
    use = RolloutUse(config(online_k=1, online_max_kl=0.1))
    for _ in range(3):
        assert use.should_collect(0)
        assert use.served({KL: 9.0}) is None
    assert use.num_early == 0


def test_rollout_without_kept_groups_not_retried() -> None:
    use = RolloutUse(config(online_k=5))
    use.should_collect(0)
    use.served_nothing()
    assert use.should_collect(0)
    assert use.num_early == 0


def test_unknown_values_pass_no_threshold() -> None:
    use = RolloutUse(config(online_k=2, online_max_kl=0.1, online_min_effective_sample_size=0.9))
    use.should_collect(0)
    assert use.served({}) is None


def test_rollout_of_other_settings_not_reused() -> None:
    schedule = [
        {"iteration": 1, "set": {"update.kl_coefficient": 0.5}},
        {"iteration": 3, "set": {"rollout.temperature": 0.5}},
    ]
    use, collected = RolloutUse(config(online_k=4, schedule=schedule)), []
    for iteration in range(8):
        collected.append(use.should_collect(iteration))
        use.served({})
    assert collected == [True, False, False, True, False, False, False, True]
    assert use.num_early == 0


@pytest.mark.parametrize("settings", [{"online_max_kl": 0.0}, {"online_min_effective_sample_size": 1.0}])
def test_thresholds_have_bounds(settings: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        config(**settings)
