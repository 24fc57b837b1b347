"""MetaMathQA: rewards of retries, observations, a user's file, and the demonstrator."""

import json
import random

import pytest
from pydantic import ValidationError

from starpo.ragen.core.errors import ConfigError, EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.countdown.expression import evaluate
from starpo.ragen.envs.metamath_qa.demonstrations import demonstrate
from starpo.ragen.envs.metamath_qa.environment import MetaMathQA, MetaMathQASettings
from starpo.ragen.envs.sources import file_digest


@pytest.fixture
def file(tmp_path):
    """File of three questions."""
    path = tmp_path / "mine.json"
    rows = [{"query": f"What is {n} + {n}?", "response": f"Sure. The answer is: {2 * n}"} for n in (1, 2, 3)]
    path.write_text(json.dumps(rows))
    return path


def test_users_file_keeps_the_conventions(file):
    settings = MetaMathQASettings(path=str(file))
    assert settings.digest == file_digest(str(file)) != ""
    assert check(settings, should_start_process=False) == []
    environment = make(settings)
    assert {environment.reset(seed=seed)[0] for seed in range(40)} == {f"What is {n} + {n}?" for n in (1, 2, 3)}


def test_settings_record_the_file_digest(file):
    settings = MetaMathQASettings(path=str(file))
    file.write_text(file.read_text().replace("Sure", "Well"))
    assert MetaMathQASettings(path=str(file)) != settings
    stored = MetaMathQASettings.model_validate_json(settings.model_dump_json())
    assert stored == settings
    with pytest.raises(EnvironmentFault, match="has changed"):
        make(stored).reset(seed=0)
    assert any("has changed" in str(finding) for finding in check(stored, should_start_process=False))


@pytest.mark.parametrize("num_wrong", range(5))
def test_reward_halves_with_each_retry(num_wrong):
    environment = MetaMathQA(MetaMathQASettings(max_tries=5))
    environment.reset(seed=3)
    for _ in range(num_wrong):
        observation, reward, terminated, _, info = environment.step("no idea")
        assert (reward, terminated, info["is_success"]) == (0.0, False, False)
        assert observation.endswith("\nIncorrect. Please think again.")
        assert observation.startswith(environment.question.text)
    observation, reward, terminated, *_ = environment.step(f"The answer is: {environment.question.answer}")
    assert (reward, terminated, environment.is_success) == (1 / 2**num_wrong, True, True)
    assert observation.endswith("Correct!")
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("1")


@pytest.mark.parametrize(("max_tries", "attempts"), [(1, "You have one attempt."), (2, "You have 2 attempts.")])
def test_rules_state_the_number_of_attempts(max_tries, attempts):
    assert attempts in MetaMathQA(MetaMathQASettings(max_tries=max_tries)).rules()


def test_tries_end():
    environment = MetaMathQA(MetaMathQASettings(max_tries=2))
    environment.reset(seed=0)
    assert environment.step("x")[1:3] == (0.0, False)
    assert environment.step("y")[1:3] == (0.0, True)
    assert not environment.is_success
    assert environment.render().splitlines()[1] == "Tried: x, y"


@pytest.mark.parametrize(("skill", "least", "most"), [(0.0, 0.1, 0.35), (1.0, 1.0, 1.0)])
def test_demonstrator_success_rate_matches_skill(skill, least, most):
    environment, successes = make(MetaMathQASettings(max_tries=1)), 0
    for seed in range(300):
        environment.reset(seed=seed)
        decision = demonstrate(environment, skill, random.Random(seed))
        sums = decision.think.split(", ")
        assert len(sums) == len(environment.question.changes)
        assert all(evaluate(left) == int(right) for left, right in (equation.split(" = ") for equation in sums))
        environment.step(decision.actions[0])
        successes += environment.is_success
    assert least <= successes / 300 <= most


def test_missing_file_is_rejected_by_settings(tmp_path):
    with pytest.raises(ValidationError, match="these settings do not name"):
        MetaMathQASettings(digest="0" * 16)
    with pytest.raises(ValidationError, match=r"none\.json cannot be read"):
        MetaMathQASettings(path=str(tmp_path / "none.json"))


def test_nobody_demonstrates_a_users_questions(file):
    environment = make(MetaMathQASettings(path=str(file)))
    environment.reset(seed=0)
    with pytest.raises(ConfigError, match=r"policy\.demonstrator"):
        demonstrate(environment, 0.5, random.Random(0))
