"""Countdown: rewards of answers, drawn puzzles, and the demonstrator."""

import random

import pytest
from pydantic import ValidationError

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.countdown.demonstrations import demonstrate
from starpo.ragen.envs.countdown.environment import Countdown, CountdownSettings
from starpo.ragen.envs.countdown.expression import evaluate, numbers_in
from starpo.ragen.envs.countdown.solver import solve

SMALL = CountdownSettings(num_numbers=3, max_number=9, max_target=30)


def puzzle(numbers, target):
    environment = Countdown(SMALL)
    environment.reset(seed=0)
    environment._numbers, environment._target = numbers, target
    return environment


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("(5 + 3) * 2", 1.0),
        ("2*5+3*2", 0.0),  # 2 is used twice
        ("2 * (3 + 5)", 1.0),
        ("2 + 3 + 5", 0.1),
        ("5 * 3 + 1", 0.0),  # 1 is not given
        ("16", 0.0),
        ("2 * 8", 0.0),
        ("2 3 5", 0.1),  # the right numbers, but no value
        ("(2 + 3 + 5", 0.1),
        ("5 / (3 - 3 * 2 / 2)", 0.0),
        ("2 ** 3 + 5", 0.1),
        ("-(2 - 3 * 5) + 3", 0.0),
        ("-(2 - 3 - 5)", 0.1),
    ],
)
def test_rewards_of_answers(answer, reward):
    environment = puzzle((2, 3, 5), 16)
    _, paid, terminated, truncated, info = environment.step(answer)
    assert (paid, terminated, truncated) == (reward, True, False)
    assert environment.is_success == info["is_success"] == (reward == 1.0)


def test_attempt_is_shown_with_its_value():
    environment = puzzle((2, 3, 5), 16)
    assert environment.render() == "Target: 16, nums: [2, 3, 5]"
    assert environment.step("2 * 5 + 3")[0] == "Target: 16, nums: [2, 3, 5]\n2 * 5 + 3 = 13"
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("2 * (3 + 5)")


@pytest.mark.parametrize(
    "settings", [SMALL, CountdownSettings(), CountdownSettings(num_numbers=5, min_target=100, max_target=999)], ids=str
)
def test_every_puzzle_has_a_solution(settings):
    environment = make(settings)
    for seed in range(60):
        environment.reset(seed=seed)
        assert len(environment.numbers) == settings.num_numbers
        assert settings.min_target <= environment.target <= settings.max_target
        assert max(environment.numbers) <= settings.max_number
        if seed < 20:
            assert solve(environment.numbers, environment.target) is not None


def test_unreachable_targets_are_refused():
    with pytest.raises(ValidationError, match="must not exceed max_target"):
        CountdownSettings(min_target=11, max_target=10)
    with pytest.raises(ValidationError, match="2 numbers up to 9 make no more than 81"):
        CountdownSettings(num_numbers=2, max_number=9, min_target=82)
    with pytest.raises(EnvironmentFault, match="made no target of 79 to 79"):
        make(CountdownSettings(num_numbers=2, max_number=9, min_target=79, max_target=79)).reset(seed=0)


def test_player_gives_true_last_attempt():
    environment = make(SMALL)
    for seed in range(200):
        environment.reset(seed=seed)
        before = environment.state_digest()
        decision = demonstrate(environment, 0.3, random.Random(seed))
        assert environment.state_digest() == before
        for equation in decision.think.replace(" vs ", ", ").split(", "):
            left, equals, right = equation.partition(" = ")
            assert not equals or evaluate(left) == int(right), decision
        (answer,) = decision.actions
        assert numbers_in(answer) == list(environment.numbers)
        assert decision.think.count("vs") <= 8
        assert "yes" not in decision.think[:-3]
        environment.step(answer)
        assert environment.is_success == decision.think.endswith("yes")
        attempts = decision.think.split(" vs ")[:-1]
        assert len({attempt.split(" = ")[-1] for attempt in attempts}) == len(attempts)
        assert str(evaluate(answer)) == attempts[-1].split(" = ")[-1]


@pytest.mark.parametrize(("skill", "least", "most"), [(0.0, 0.02, 0.3), (1.0, 0.96, 1.0)])
def test_success_equals_skill(skill, least, most):
    environment, successes = make(SMALL), 0
    for seed in range(300):
        environment.reset(seed=seed)
        environment.step(demonstrate(environment, skill, random.Random(seed)).actions[0])
        successes += environment.is_success
    assert least <= successes / 300 <= most
