"""The checker passes every variant and finds every fault injected into an environment."""

import random
import re

import numpy as np
import pytest

import starpo.ragen.envs.check
from starpo.ragen.core.errors import EnvironmentFault, MissingPackageError
from starpo.ragen.core.registry import SUITES
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.bandit.environment import Bandit, BanditSettings
from starpo.ragen.envs.check import RULES, check, trace
from starpo.ragen.envs.frozen_lake.environment import FrozenLake, FrozenLakeSettings
from starpo.ragen.envs.frozen_lake.map import ACTIONS
from starpo.ragen.envs.variants import VARIANTS


@pytest.mark.ci
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_passes(variant):
    first = {one.type: name for name, one in reversed(VARIANTS.items()) if one.type not in SUITES}.values()
    try:
        findings = check(VARIANTS[variant].settings, should_start_process=variant in first)
    except MissingPackageError as error:
        pytest.skip(str(error))
    assert findings == [], "\n".join(map(str, findings))


class BanditWithoutItsOwnChance(Bandit):
    """Fault of the public code: one random draw for the whole group."""

    def reset(self, *, seed, dynamics_seed=0):
        return super().reset(seed=seed, dynamics_seed=0)


class BanditWhoseMembersDiffer(Bandit):
    """Fault of the public code: members of a group start from different arms."""

    def reset(self, *, seed, dynamics_seed=0):
        return super().reset(seed=seed + dynamics_seed, dynamics_seed=dynamics_seed)


class BanditThatSaysItHasNoChance(Bandit):
    has_chance = False


class BanditWithOneStart(Bandit):
    def reset(self, *, seed, dynamics_seed=0):
        return super().reset(seed=0, dynamics_seed=dynamics_seed)


class BanditWithTooManyStarts(Bandit):
    num_initial_states = 3


class BanditThatDrawsGlobally(Bandit):
    def step(self, action):
        random.random()
        return super().step(action)


class BanditThatSeedsNumpy(Bandit):
    def reset(self, *, seed, dynamics_seed=0):
        np.random.seed(seed)
        return super().reset(seed=seed, dynamics_seed=dynamics_seed)


class BanditThatGoesOn(Bandit):
    """Bandit that accepts steps after the end."""

    def step(self, action):
        try:
            return super().step(action)
        except EnvironmentFault:
            if action in self.actions:
                return self.render(), 0.0, True, False, {"effective": False}
            raise


class BanditWithPipes(Bandit):
    actions = ("Left || Right", "Up")


class BanditThatSharesItsState(Bandit):
    """Bandit whose instances share one random generator."""

    _shared: dict = {}  # noqa: RUF012

    def __setattr__(self, name, value):
        if name == "_chance":
            self._shared[name] = value
        else:
            super().__setattr__(name, value)

    def __getattribute__(self, name):
        shared = super().__getattribute__("_shared")
        return shared[name] if name in shared else super().__getattribute__(name)


class LakeThatTruncates(FrozenLake):
    """Lake that uses `truncated` to mean 'not successful'."""

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, terminated and not self.is_success, info


class LakeThatIsAlwaysEffective(FrozenLake):
    def step(self, action):
        *results, info = super().step(action)
        return (*results, info | {"effective": True})


class LakeWithAnArrayInItsInfo(FrozenLake):
    def step(self, action):
        *results, info = super().step(action)
        return (*results, info | {"cell": np.array(info["cell"])})


class LakeWithATupleInItsInfo(FrozenLake):
    def step(self, action):
        *results, info = super().step(action)
        return (*results, info | {"cell": tuple(info["cell"])})


class LakeThatPaysIntegers(FrozenLake):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return (observation, int(reward), *rest)


class LakeThatTakesAnything(FrozenLake):
    def step(self, action):
        return super().step(action if action in ACTIONS else "Left")


class LakeThatAnswersBeforeReset(FrozenLake):
    def step(self, action):
        if self._lake is None:
            return "", 0.0, False, False, {"effective": False}
        return super().step(action)


class LakeWhoseRulesStepOn(FrozenLake):
    def rules(self):
        self._chance = python_random(1, "frozen lake slips")
        return super().rules()


class LakeThatShowsTooMuch(FrozenLake):
    def render(self):
        return "." * 1_000_001


class LakeThatHidesItsActions(FrozenLake):
    def rules(self):
        return "Reach the goal."


class LakeThatCostsMore(FrozenLake):
    """An action pays -0.1, but forfeited actions are priced at 0, so not acting pays better."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return (observation, reward - 0.1, *rest)


class LakeThatRemembers(FrozenLake):
    """Lake whose reused instance plays another episode than a new one."""

    def reset(self, *, seed, dynamics_seed=0):
        previous = self._cell if self._lake else 0
        return super().reset(seed=seed, dynamics_seed=dynamics_seed + previous)


class LakeWithAShortDigest(FrozenLake):
    def state_digest(self):
        return super().state_digest()[:8]


class LakeWhoseChanceIsNotDrawnAnew(FrozenLake):
    """`reseed` is a no-op: clones slip exactly as the original, and what search chose cannot be reproduced."""

    def reset(self, *, seed, dynamics_seed=0):
        result = super().reset(seed=seed, dynamics_seed=dynamics_seed)
        self._chance = python_random(dynamics_seed, "frozen lake slips")
        return result

    def reseed(self, dynamics_seed):
        pass


class LakeWhoseClonesAreItself(FrozenLake):
    def clone(self, dynamics_seed):
        return self


class LakeThatBreaksDown(FrozenLake):
    def step(self, action):
        raise RuntimeError("no ice today")


FAULTS = {
    BanditWithoutItsOwnChance: "chance is each members own",
    BanditWhoseMembersDiffer: "members share their start",
    BanditThatSaysItHasNoChance: "chance is each members own",
    BanditWithOneStart: "seeds give different starts",
    BanditWithTooManyStarts: "seeds give different starts",
    BanditThatDrawsGlobally: "global generators are left alone",
    BanditThatSeedsNumpy: "global generators are left alone",
    BanditThatGoesOn: "the end is the end",
    BanditWithPipes: "actions can be named",
    BanditThatSharesItsState: "same seeds same episode",
    LakeThatTruncates: "reset and step conventions",
    LakeThatIsAlwaysEffective: "reset and step conventions",
    LakeWithAnArrayInItsInfo: "reset and step conventions",
    LakeWithATupleInItsInfo: "reset and step conventions",
    LakeThatPaysIntegers: "reset and step conventions",
    LakeThatTakesAnything: "unknown actions are refused",
    LakeThatAnswersBeforeReset: "nothing before reset",
    LakeWhoseRulesStepOn: "looking changes nothing",
    LakeThatShowsTooMuch: "reset and step conventions",
    LakeThatHidesItsActions: "actions can be named",
    LakeThatCostsMore: "action cost is a lower bound",
    LakeThatRemembers: "same seeds same episode",
    LakeWithAShortDigest: "reset and step conventions",
    LakeWhoseChanceIsNotDrawnAnew: "a clone goes its own way",
    LakeWhoseClonesAreItself: "a clone goes its own way",
}


def words(rule):
    return rule.__name__.strip("_").replace("_", " ")


@pytest.mark.parametrize("faulty", FAULTS, ids=lambda faulty: faulty.__name__)
def test_the_fault_is_found(faulty, monkeypatch):
    (rule,) = (rule for rule in RULES if words(rule) == FAULTS[faulty])
    monkeypatch.setattr(starpo.ragen.envs.check, "RULES", (rule,))
    monkeypatch.setattr(starpo.ragen.envs.check, "make", faulty)
    settings = BanditSettings() if issubclass(faulty, Bandit) else FrozenLakeSettings()
    assert {finding.rule for finding in check(settings, should_start_process=False)} == {FAULTS[faulty]}


def test_every_rule_detects_its_fault():
    assert {words(rule) for rule in RULES} == set(FAULTS.values()) | {"settings survive json"}


def test_global_generators_are_restored():
    before = random.getstate(), repr(np.random.get_state())
    check(BanditSettings(), should_start_process=False)
    assert (random.getstate(), repr(np.random.get_state())) == before


def test_settings_changed_by_json_are_detected():
    class Unfaithful(BanditSettings):
        def model_dump_json(self, **_):
            return '{"names": "held_out"}'

    assert [f.rule for f in check(Unfaithful(), should_start_process=False)] == ["settings survive json"]


@pytest.mark.ci
def test_a_difference_between_processes_is_found(monkeypatch):
    shifted = lambda settings, seed, dynamics_seed, max_steps=40: trace(settings, seed + 1, dynamics_seed, max_steps)  # noqa: E731
    monkeypatch.setattr(starpo.ragen.envs.check, "trace", shifted)
    assert "same in another process" in {finding.rule for finding in check(BanditSettings())}


def test_a_finding_reads_as_a_line(monkeypatch):
    monkeypatch.setattr(starpo.ragen.envs.check, "make", LakeThatBreaksDown)
    lines = [str(finding) for finding in check(FrozenLakeSettings(), should_start_process=False)]
    raised = [line for line in lines if "no ice" in line]
    assert len(raised) == 1  # though it is raised in ten rules
    assert re.search(r"raised RuntimeError: no ice today \(and \d+ more like it, in \d+ rules\)$", raised[0]), raised
