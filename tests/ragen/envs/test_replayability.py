"""Replayability: found by playing or declared by the environment; reported as text and as JSON."""

import itertools
import json

import pytest

from starpo.flows.cli.envs import envs
from starpo.ragen.core.errors import MissingPackageError
from starpo.ragen.envs.bandit.environment import Bandit, BanditSettings
from starpo.ragen.envs.check import check, replay_fault
from starpo.ragen.envs.make import make, settings_type
from starpo.ragen.envs.mixture.environment import MixtureSettings

HERE = "tests.ragen.envs.test_replayability"
CLOCK = itertools.count()


class BanditByTheClock(Bandit):
    """Bandit whose pay-outs are drawn anew in every episode, whatever the seeds."""

    def reset(self, *, seed, dynamics_seed=0):
        return super().reset(seed=seed, dynamics_seed=dynamics_seed + 1000 * next(CLOCK))


class HonestBanditByTheClock(BanditByTheClock):
    replay_fault = "what its arms pay is drawn by the clock"


class BanditThatCannotBeMade(Bandit):
    def __init__(self, settings):
        raise MissingPackageError("it needs arms: pip install arms")


def settings_of(name):
    return settings_type(f"{HERE}:{name}")()


def verdict(settings, **options):
    findings = check(settings, **options)
    return replay_fault(settings, findings), {finding.rule for finding in findings}


def test_repeating_environment_is_replayable():
    assert verdict(BanditSettings(), should_start_process=False) == ("", set())
    assert make(BanditSettings()).is_replayable


def test_unreplayable_environment_detected_by_playing():
    fault, broken = verdict(settings_of("BanditByTheClock"), should_start_process=False)
    assert "plays another episode" in fault
    assert "same seeds same episode" in broken


def test_declared_unreplayable_is_not_tested():
    assert verdict(settings_of("HonestBanditByTheClock")) == ("what its arms pay is drawn by the clock", set())


def test_missing_package_is_no_finding():
    with pytest.raises(MissingPackageError, match="pip install arms"):
        check(settings_of("BanditThatCannotBeMade"))


def test_command_prints_words_and_json(capsys):
    envs([f"{HERE}:HonestBanditByTheClock"], check=True, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["replayable"], row["replay_fault"]) == (False, "what its arms pay is drawn by the clock")
    assert row["findings"] == []
    envs([f"{HERE}:HonestBanditByTheClock", "Bandit"], check=True, as_json=True)
    assert [row["replayable"] for row in json.loads(capsys.readouterr().out)] == [False, True]
    envs([f"{HERE}:HonestBanditByTheClock"], check=True)
    assert "no, because what its arms pay" in " ".join(capsys.readouterr().out.split())


def test_mixture_as_replayable_as_parts():
    parts = {
        "plain": {"environment": {"type": "bandit"}},
        "clock": {"environment": settings_of("HonestBanditByTheClock")},
    }
    mixture = make(MixtureSettings(parts=parts))
    assert mixture.replay_fault == "part clock: what its arms pay is drawn by the clock"
