"""Seeds of initial states that are not excluded."""

import time

import pytest

from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.core.errors import CallLimitError, EnvironmentFault
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLake, FrozenLakeSettings
from starpo.ragen.envs.initial_states import fresh_env_seed

LAKE = FrozenLakeSettings()
TINY = FrozenLakeSettings(size=2, frozen_probability=1.0, placement="corners")
"""Lake with a single initial state."""


def digest(settings, seed):
    environment = make(settings)
    environment.reset(seed=seed)
    return environment.state_digest()


def test_seed_is_derived_without_exclusions():
    assert fresh_env_seed(LAKE, 5, "environment", 2, 3, excluded=frozenset()) == derive_seed(5, "environment", 2, 3)
    assert fresh_env_seed(LAKE, 5, excluded=frozenset({"0" * 16})) == derive_seed(5)


def test_excluded_states_redrawn_in_order():
    first, second, third = derive_seed("x", 1), derive_seed("x", 1, "again", 1), derive_seed("x", 1, "again", 2)
    assert fresh_env_seed(LAKE, "x", 1, excluded=frozenset({digest(LAKE, first)})) == second
    assert fresh_env_seed(LAKE, "x", 1, excluded=frozenset({digest(LAKE, first), digest(LAKE, second)})) == third


def test_few_states_shared_with_panel():
    bandit = BanditSettings()
    everything = frozenset(digest(bandit, seed) for seed in range(400))
    assert fresh_env_seed(bandit, "train", 0, excluded=everything) == derive_seed("train", 0)


def test_search_ends_if_all_excluded():
    with pytest.raises(EnvironmentFault, match=r"101 initial states drawn.*lower evaluation\.num_prompts"):
        fresh_env_seed(TINY, "train", excluded=frozenset({digest(TINY, 0)}))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("door", ["__init__", "reset", "state_digest"])
def test_hanging_panel_ends_at_limit(door, monkeypatch):
    monkeypatch.setenv("STARPO_ENVIRONMENT_S", "0.3")
    monkeypatch.setattr(FrozenLake, door, lambda *_, **__: time.sleep(1e6))
    with pytest.raises(CallLimitError, match=r"environment 'frozen_lake' took longer than 0.3 s.*STARPO_ENVIRONMENT_S"):
        make_panel(LAKE, 4, 987)
