from typing import Literal

import pytest

from starpo.ragen.agents.evaluation import panel as panel_module
from starpo.ragen.agents.evaluation.panel import _make_panel, make_panel
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import initial_states, make
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings


class FewStatesSettings(EnvironmentSettings):
    type: Literal["few_states"] = "few_states"
    num_states: int = 3


class FewStates(Environment[FewStatesSettings]):
    """Environment with states 0 .. num_states - 1 that declares no limit on their number."""

    settings_type = FewStatesSettings
    num_initial_states = None
    actions = ("Up",)
    is_success = False

    def reset(self, *, seed, dynamics_seed=0):
        self._state = seed % self.settings.num_states
        return str(self._state), {}

    def step(self, action):
        return "", 0.0, True, False, {"effective": True}

    def rules(self):
        return ""

    def state_digest(self):
        return f"{self._state:016x}"

    def render(self):
        return ""


@pytest.fixture
def few_states(monkeypatch):
    monkeypatch.setattr(panel_module, "make", FewStates)
    monkeypatch.setattr(initial_states, "make", FewStates)
    return FewStatesSettings()


def test_states_distinct_and_from_seeds():
    settings = FrozenLakeSettings()
    panel = make_panel(settings, 64, panel_seed=3)
    assert len(panel.env_seeds) == len(set(panel.env_seeds)) == 64
    assert len(set(panel.state_digests)) == 64
    environment = make(settings)
    environment.reset(seed=panel.env_seeds[10])
    assert environment.state_digest() == panel.state_digests[10]


def test_repeated_states_are_drawn_again(few_states):
    panel = make_panel(few_states, 3, panel_seed=0)
    assert sorted(panel.state_digests) == [f"{state:016x}" for state in range(3)]


def test_exhausted_states_are_environment_fault(few_states):
    with pytest.raises(EnvironmentFault, match="too few initial states"):
        make_panel(few_states, 4, panel_seed=0)


def test_few_initial_states_may_repeat():
    panel = make_panel(BanditSettings(), 200, panel_seed=0)
    assert len(panel.state_digests) == 200
    assert len(panel.excluded_digests) < 200


def test_panel_depends_on_settings_and_seed():
    settings = FrozenLakeSettings()
    panel = make_panel(settings, 8, panel_seed=3)
    assert _make_panel.__wrapped__(FrozenLakeSettings, settings.model_dump_json(), 8, 3, ()) == panel
    others = [
        make_panel(settings, 8, panel_seed=4),
        make_panel(settings, 9, panel_seed=3),
        make_panel(FrozenLakeSettings(size=5), 8, panel_seed=3),
    ]
    assert panel.digest not in {other.digest for other in others}
    assert others[1].env_seeds[:8] == panel.env_seeds


def test_digest_equal_in_any_process(few_states):
    # Golden value: if it changes, stored evaluations belong to a different panel.
    assert make_panel(few_states, 3, panel_seed=0).digest == "2f0887b47c5da7ddacd08ce846903bbf"
