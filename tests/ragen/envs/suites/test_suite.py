"""Behaviour common to all adapters: rejected actions, digests, images, missing packages, names of tasks."""

import builtins
from typing import ClassVar

import pytest

from starpo.ragen.core.errors import ConfigError, EnvironmentFault, MissingPackageError
from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.envs import make
from starpo.ragen.envs.grammar import FreeText
from starpo.ragen.envs.make import settings_type
from starpo.ragen.envs.suites.suite import StepResult, Suite, SuiteSettings
from starpo.ragen.envs.variants import variant


class Echo(Suite[SuiteSettings]):
    """Suite that echoes each action and ends after three."""

    settings_type = SuiteSettings
    name = "echo"
    grammar = FreeText("Say anything.", 10)

    def begin(self, seed, dynamics_seed):
        self.left = 3
        return "hello"

    def take(self, action):
        self.left -= 1
        return StepResult(action, 0.5, self.left == 0, self.left == 0)


def echo(seed=0):
    environment = Echo(SuiteSettings(type="echo", task="any"))
    environment.reset(seed=seed)
    return environment


def test_an_episode():
    environment = echo()
    assert environment.render() == "hello"
    assert environment.step("a") == ("a", 0.5, False, False, {"effective": True, "is_success": False})
    environment.step("b")
    assert environment.step("c") == ("c", 0.5, True, False, {"effective": True, "is_success": True})
    assert environment.is_success


def test_unread_and_late_actions_are_refused():
    with pytest.raises(EnvironmentFault, match="before the first reset"):
        Echo(SuiteSettings(type="echo", task="any")).step("a")
    environment = echo()
    before = environment.state_digest()
    with pytest.raises(EnvironmentFault, match="At most 10 characters"):
        environment.step("a" * 11)
    assert environment.state_digest() == before
    for action in "abc":
        environment.step(action)
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("d")


class Unloadable(Echo):
    """Suite that cannot load the episode of the replay trials, and checks `replay_fault` for every digest."""

    trials: ClassVar[list[int]] = []

    def begin(self, seed, dynamics_seed):
        if seed == 0:
            self.trials.append(seed)
            raise EnvironmentFault("game 0 is damaged")
        return super().begin(seed, dynamics_seed)

    def state_digest(self):
        return super().state_digest() if self.replay_fault else f"{self.left:016}"


def test_failed_replay_trial_is_not_repeated():
    environment = Unloadable(SuiteSettings(type="unloadable", task="any"))
    environment.reset(seed=1)
    for action in "abc":
        environment.step(action)
    assert environment.replay_fault == "it cannot be asked: game 0 is damaged"
    assert len(Unloadable.trials) == 1


def test_state_digest_covers_seed_and_actions():
    left, right, other = echo(), echo(), echo(seed=1)
    assert left.state_digest() == right.state_digest() != other.state_digest()
    left.step("a")
    right.step("b")
    assert left.state_digest() != right.state_digest()


def test_suite_task_names_a_variant():
    settings = variant("reasoning_gym/gcd").settings
    assert (settings.type, settings.task) == ("reasoning_gym", "gcd")
    assert variant("openenv/http://localhost:8000").settings.task == "http://localhost:8000"
    with pytest.raises(ConfigError, match="suite/task"):
        variant("nosuch/gcd")


@pytest.mark.parametrize("suite", SUITES)
def test_missing_package_error_names_extra(suite, monkeypatch, tmp_path):
    package = {"alfworld": "textworld"}.get(suite, suite)
    (tmp_path / "game.tw-pddl").touch()
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == package and (not rest or not rest[-1]):
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    assert suite in ENVIRONMENTS
    settings = settings_type(suite)(task=str(tmp_path))
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackageError, match=rf"pip install 'starpo\[{suite}\]'"):
        make(settings)
