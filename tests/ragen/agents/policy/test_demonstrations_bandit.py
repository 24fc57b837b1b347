"""The bandit's demonstrator states what the names mean, never which arm pays."""

import random

import pytest

from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.demonstrations import MEANINGS, demonstrate, lessons
from starpo.ragen.envs.bandit.environment import NAME_PAIRS, BanditSettings


def demonstrations(settings, skill, count=2000):
    environment = make(settings)
    for seed in range(count):
        environment.reset(seed=seed)
        yield environment, demonstrate(environment, skill, random.Random(seed))


def test_thought_states_meanings_in_order():
    thoughts = {e.actions: d.think for e, d in demonstrations(BanditSettings(names="phoenix_dragon"), 0.25, count=20)}
    thought = {("Phoenix", "Dragon"): "Phoenix safe Dragon risky", ("Dragon", "Phoenix"): "Dragon risky Phoenix safe"}
    assert thoughts == thought


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("names", NAME_PAIRS)
def test_success_equals_skill_for_all_names(names, is_reversed):
    successes = 0
    for environment, demonstration in demonstrations(BanditSettings(names=names, is_reversed=is_reversed), 0.25):
        (action,) = demonstration.actions
        environment.step(action)
        successes += environment.is_success
    # Standard deviation of the share: sqrt(0.25 * 0.75 / 2000) = 0.0097; the tolerance is four of them, 0.039.
    assert successes / 2000 == pytest.approx(0.25, abs=0.039)


def test_the_choice_says_nothing_about_position():
    first = sum(d.actions[0] == e.actions[0] for e, d in demonstrations(BanditSettings(), 0.25))
    assert first / 2000 == pytest.approx(0.5, abs=4 * (0.25 / 2000) ** 0.5)


def test_every_name_has_meaning_and_lesson():
    assert all((MEANINGS[safe], MEANINGS[risky]) == ("safe", "risky") for p in NAME_PAIRS.values() for safe, risky in p)
    taught = lessons(BanditSettings(low_reward=0.1))
    assert [settings.names for settings in taught] == list(NAME_PAIRS)
    assert all(settings.low_reward == 0.1 for settings in taught)
