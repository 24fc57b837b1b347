"""Gymnasium environments: named actions, templates, separate seeds for the start and for chance, and success."""

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="pip install 'starpo[gymnasium]'")

import gymnasium

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.suites.gymnasium import GymnasiumSettings
from starpo.ragen.envs.variants import VARIANTS

LAKE = VARIANTS["GymFrozenLake"].settings
DRY = LAKE.model_copy(update={"config": {"is_slippery": False}})


def test_frozen_lake_matches_gymnasium():
    environment, theirs = make(DRY), gymnasium.make("FrozenLake-v1", is_slippery=False)
    environment.reset(seed=3)
    theirs.reset(seed=3)
    for name, number in [("Down", 1), ("Down", 1), ("Right", 2), ("Down", 1), ("Right", 2), ("Right", 2)]:
        observation, reward, terminated, truncated, info = environment.step(name)
        _, their_reward, their_end, _, _ = theirs.step(number)
        assert (reward, terminated, truncated) == (their_reward, their_end, False)
        assert info["effective"]
    assert environment.is_success
    assert observation.endswith("HFF[G]")


def test_chance_and_starts_come_from_tables():
    assert make(LAKE).has_chance
    assert not make(DRY).has_chance
    assert make(LAKE).num_initial_states == 1
    taxi = make(VARIANTS["GymTaxi"].settings)
    assert (taxi.has_chance, taxi.num_initial_states, taxi.action_cost) == (False, 300, -10.0)


def test_a_template_shows_decoded_values():
    environment = make(VARIANTS["GymTaxi"].settings)
    observation, _ = environment.reset(seed=0)
    row, column, passenger, destination = environment._world.unwrapped.decode(environment._world.unwrapped.s)
    expected = f"taxi at row {row} column {column}, passenger {passenger}, destination {destination}"
    assert observation.splitlines()[-1] == expected


def test_box_digest_is_exact_despite_rounding():
    environment = make(GymnasiumSettings(task="CartPole-v1", has_chance=False))
    observation, _ = environment.reset(seed=0)
    before = environment.state_digest()
    assert len(observation.split()) == 5  # `State:` and four numbers
    environment._observation = environment._observation + np.float32(1e-7)
    assert environment.state_digest() != before


class Speller(gymnasium.Env):
    """Environment that asks for a word."""

    action_space = gymnasium.spaces.Text(max_length=3, charset="ab")
    observation_space = gymnasium.spaces.Text(max_length=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = "".join("ab"[n] for n in self.np_random.integers(0, 2, 3))
        return self.word, {}

    def step(self, action):
        return self.word, float(action == self.word), action == self.word, False, {}


@pytest.fixture
def speller():
    gymnasium.register("Speller-v0", Speller)
    yield GymnasiumSettings(task="Speller-v0", template="Spell {0}", has_chance=False, num_initial_states=8)
    del gymnasium.registry["Speller-v0"]


def test_a_text_space_is_free_text(speller):
    environment = make(speller)
    observation, _ = environment.reset(seed=0)
    assert environment.step("xyz")[1:] == (0.0, False, False, {"effective": False, "is_success": False})
    assert environment.step(observation.removeprefix("Spell "))[1:3] == (1.0, True)
    assert check(speller, should_start_process=False) == []


def test_registered_nondeterminism_is_a_replay_fault():
    gymnasium.register("Erratic-v0", Speller, nondeterministic=True)
    try:
        environment = make(GymnasiumSettings(task="Erratic-v0"))
    finally:
        del gymnasium.registry["Erratic-v0"]
    assert environment.replay_fault == "its registration says that it is not deterministic"
    starts = set()
    for _ in range(2):
        environment.reset(seed=0)
        environment._observation = "another"
        starts.add(environment.state_digest())
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": "Nowhere-v0"}, "Nowhere"),
        ({"config": {"wings": 2}}, "wings"),
        ({"task": "Pendulum-v1"}, "only Discrete and Text"),
        ({"actions": ["Left", "Right"]}, "has 4 actions"),
    ],
)
def test_what_cannot_be_made_is_told(changed, message):
    with pytest.raises(ConfigError, match=message):
        make(GymnasiumSettings(**changed))


def test_templates_are_checked():
    with pytest.raises(ValueError, match="is not a field of a template"):
        GymnasiumSettings(template="{values.__class__}")
    with pytest.raises(ValueError, match=r"\{0\} is filled in as text and takes no format"):
        GymnasiumSettings(template="x {0:.2f}")
    with pytest.raises(ValueError, match="must all differ"):
        GymnasiumSettings(actions=["Left", "left"])
    with pytest.raises(ConfigError, match="names more than the 1 values"):
        make(GymnasiumSettings(template="{0} {1}")).reset(seed=0)
