"""Bandit: names, their order, pay-outs, success, and faults of the reference implementation."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from starpo.ragen.envs.bandit.environment import NAME_PAIRS, Bandit, BanditSettings


def start(seed=0, dynamics_seed=0, **settings):
    environment = Bandit(BanditSettings(**settings))
    environment.reset(seed=seed, dynamics_seed=dynamics_seed)
    return environment


def test_pairs_for_training_or_held_out():
    assert len(set(NAME_PAIRS["train"])) == 12
    assert len(set(NAME_PAIRS["held_out"])) == 8
    assert not {frozenset(p) for p in NAME_PAIRS["train"]} & {frozenset(p) for p in NAME_PAIRS["held_out"]}


def test_names_keep_their_risk_across_pairs():
    pairs = [pair for pairs in NAME_PAIRS.values() for pair in pairs]
    assert not {safe for safe, _ in pairs} & {risky for _, risky in pairs}


@pytest.mark.parametrize(("names", "count"), [("train", 24), ("held_out", 16), ("phoenix_dragon", 2)])
def test_pairs_drawn_in_both_orders(names, count):
    digests = set()
    for seed in range(400):
        digests.add(start(seed, names=names).state_digest())
    assert len(digests) == count <= Bandit.num_initial_states


def test_members_have_own_chance():
    environment = Bandit(BanditSettings(high_probability=0.25))
    paid = []
    for dynamics_seed in range(4000):
        environment.reset(seed=7, dynamics_seed=dynamics_seed)
        paid.append(environment.step(environment.high_risk_arm)[1])
    assert set(paid) == {0.0, 1.0}
    # Standard error of the mean: sqrt(0.25 * 0.75 / 4000) = 0.0068; four standard errors are 0.027.
    assert np.mean(paid) == pytest.approx(0.25, abs=0.027)


def test_risky_payment_independent_of_state():
    environment = Bandit(BanditSettings())
    pays = set()
    for seed in range(40):
        environment.reset(seed=seed, dynamics_seed=3)
        pays.add(environment.step(environment.high_risk_arm)[1])
    assert len(pays) == 1


@pytest.mark.parametrize(("is_reversed", "high_risk"), [(False, "Dragon"), (True, "Phoenix")])
def test_success_is_risky_arm_despite_payment(is_reversed, high_risk):
    outcomes = set()
    for dynamics_seed in range(20):
        environment = start(0, dynamics_seed, names="phoenix_dragon", is_reversed=is_reversed)
        _, reward, terminated, truncated, _ = environment.step(high_risk)
        outcomes.add((reward, terminated, truncated, environment.is_success))
    assert outcomes == {(0.0, True, False, True), (1.0, True, False, True)}


@pytest.mark.parametrize("low_reward", [0.15, 0.1])
def test_low_risk_arm_pays_constant(low_reward):
    for dynamics_seed in range(20):
        environment = start(0, dynamics_seed, names="phoenix_dragon", low_reward=low_reward)
        assert environment.step("Phoenix")[1:4] == (low_reward, True, False)
        assert not environment.is_success


def test_observation_names_arms_then_payment():
    environment = start(0, names="phoenix_dragon")
    assert environment.render() in ("Arms: Phoenix Dragon", "Arms: Dragon Phoenix")
    assert environment.render() == f"Arms: {' '.join(environment.actions)}"
    assert environment.step("Phoenix")[0].endswith("\nPhoenix pays 0.15")


def test_settings_without_paying_risk_refused():
    with pytest.raises(ValidationError, match=r"pays 0\.25 on average"):
        BanditSettings(low_reward=0.25)
    assert math.isclose(BanditSettings(low_reward=0.249).low_reward, 0.249)
