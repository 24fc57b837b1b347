"""reasoning-gym questions: functions of task, configuration, seed and number; scoring; the mediocre demonstrator."""

import random
from importlib.metadata import version

import pytest

pytest.importorskip("reasoning_gym", reason="pip install 'starpo[reasoning_gym]'")

import reasoning_gym

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.identity import code_identity
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.suites.demonstrations import THOUGHT, demonstrate
from starpo.ragen.envs.suites.reasoning_gym import ReasoningGymSettings
from starpo.ragen.envs.variants import VARIANTS

SUMS = VARIANTS["ChainSum"].settings


def test_a_question_is_the_packages_own():
    environment = make(SUMS)
    observation, _ = environment.reset(seed=5)
    theirs = reasoning_gym.create_dataset("chain_sum", seed=0, size=SUMS.size, **SUMS.config)
    item = theirs[derive_seed(5, "reasoning-gym") % SUMS.size]
    assert observation == item["question"]
    assert environment.item["answer"] == item["answer"]


def test_answer_pays_score_and_ends_episode():
    environment = make(SUMS)
    environment.reset(seed=5)
    answer = environment.item["answer"]
    assert environment.step(answer)[1:3] == (1.0, True)
    assert environment.is_success
    environment.reset(seed=5)
    assert environment.step("1000")[1] < 1.0
    assert not environment.is_success


def test_unreadable_answer_scores_zero():
    environment = make(SUMS.model_copy(update={"task": "prime_factorization", "config": {}}))
    environment.reset(seed=5)
    _, reward, is_over, _, _ = environment.step("no idea")
    assert (reward, is_over, environment.is_success) == (0.0, True, False)


def test_states_are_questions_whatever_their_number():
    two = ReasoningGymSettings(config={"min_terms": 1, "max_terms": 1, "min_digits": 1, "max_digits": 1})
    environment, states, questions = make(two), set(), set()
    for seed in range(100):
        questions.add(environment.reset(seed=seed)[0])
        states.add(environment.state_digest())
    assert len(states) == len(questions) <= 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": "chain_sums"}, "has no task .*chain_sum"),
        ({"config": {"min_terms": 5, "max_terms": 2}}, "max_terms must be"),
        ({"config": {"colour": "red"}}, "colour"),
    ],
)
def test_what_cannot_be_made_is_told(changed, message):
    with pytest.raises(ConfigError, match=message):
        make(ReasoningGymSettings(**changed))


EVALUATING = (
    "binary_matrix", "countdown", "intermediate_integration", "n_queens", "polynomial_multiplication", "puzzle24",
    "simple_integration", "spiral_matrix", "string_insertion",
)  # fmt: skip


@pytest.mark.parametrize("task", EVALUATING)
def test_evaluating_scorer_is_rejected_by_default(task):
    with pytest.raises(ConfigError, match=r"running it as Python \((eval|parse_expr)\).*should_evaluate_answers"):
        make(ReasoningGymSettings(task=task))


def test_evaluated_answer_cannot_exit_process():
    settings = ReasoningGymSettings(task="spiral_matrix", should_evaluate_answers=True)
    assert ReasoningGymSettings.model_validate_json(settings.model_dump_json()) == settings
    environment = make(settings)
    environment.reset(seed=0)
    assert environment.step("exit()")[1:3] == (0.0, True)


def test_demonstration_accuracy_matches_skill():
    environment, rng = make(SUMS), random.Random(0)
    right = 0
    for seed in range(400):
        environment.reset(seed=seed)
        decision = demonstrate(environment, 0.25, rng)
        (answer,) = decision.actions
        assert decision.think == THOUGHT
        assert environment.grammar.read(answer) == answer
        right += environment.step(answer)[1] == 1.0
    # Standard error: sqrt(0.25 * 0.75 / 400) = 0.022; four standard errors are 0.087.
    assert right / 400 == pytest.approx(0.25, abs=0.087)


@pytest.mark.parametrize("task", ["graph_color", "rush_hour"])
def test_demonstrating_without_stored_answers_fails(task):
    environment = make(ReasoningGymSettings(task=task))
    environment.reset(seed=0)
    with pytest.raises(ConfigError, match=f"reasoning_gym/{task} has no stored answers"):
        demonstrate(environment, 0.25, random.Random(0))


def test_package_version_changes_code_identity(monkeypatch):
    from starpo.ragen.core import identity

    target = ENVIRONMENTS["reasoning_gym"]
    here, known = code_identity(target), identity.installed
    assert known("reasoning_gym") == f"reasoning_gym=={version('reasoning-gym')}"
    monkeypatch.setattr(
        identity, "installed", lambda module: "reasoning_gym==0.0.0" if module == "reasoning_gym" else known(module)
    )
    code_identity.cache_clear()
    try:
        assert code_identity(target) != here
    finally:
        code_identity.cache_clear()
