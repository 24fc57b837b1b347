"""Online-k: when a rollout is reused, and when it is not."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.learning.control.rollout_use import RolloutUse


def config(**settings: Any) -> StarPOConfig:
    from starpo.ragen.envs.variants import VARIANTS

    environment: EnvironmentConfig = VARIANTS["Sokoban"].settings
    return StarPOConfig(environment=environment, **settings)


@given(st.integers(1, 7), st.integers(1, 30))
def test_every_kth_iteration_collects(online_k: int, iterations: int) -> None:
    use, collected = RolloutUse(config(online_k=online_k)), []
    for iteration in range(iterations):
        collected.append(use.should_collect(iteration))
        use.served()
    assert collected == [iteration % online_k == 0 for iteration in range(iterations)]


def test_a_rollout_of_which_nothing_was_kept_is_not_tried_again() -> None:
    use = RolloutUse(config(online_k=5))
    use.should_collect(0)
    use.served_nothing()
    assert use.should_collect(0)


def test_what_was_played_with_other_settings_is_not_used_again() -> None:
    schedule = [
        {"iteration": 1, "set": {"update.kl_coefficient": 0.5}},
        {"iteration": 3, "set": {"rollout.temperature": 0.5}},
    ]
    use, collected = RolloutUse(config(online_k=4, schedule=schedule)), []
    for iteration in range(8):
        collected.append(use.should_collect(iteration))
        use.served()
    assert collected == [True, False, False, True, False, False, False, True]
