"""What cannot be credited is refused in a sentence, by `starpo credit` and where a run trains on it."""

import re
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.bandit.environment import Bandit
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.creditable import check_creditable, credit_fault


class BanditByTheClock(Bandit):
    """Bandit that declares that it cannot be replayed."""

    replay_fault = "what its arms pay is drawn by the clock"


class LonelyBandit(Bandit):
    """Bandit that cannot be copied."""

    def clone(self, dynamics_seed: int) -> Bandit:
        raise NotImplementedError("there is only one")


JUDGED = {"reward.components": ["judge"], "reward.options.judge": {"base_url": "http://host/v1", "model": "m"}}
STATED = {"agent.form": "grounding", "agent.prompt": "full", "reward.components": ["grounding"]}
SHORT = {"agent.max_turns": 1, "agent.max_actions": 1, "agent.max_actions_per_turn": 1}
MEASURED = {"update.advantage": "monte_carlo"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollout.search.type": "best_of", "update.search_rows": "weigh"}, r"are chosen by search \('best_of'\)"),
        ({"agent.observation": "image", "policy.patch_size": 32}, "prompts show images"),
        (JUDGED, "'judge' asks a server, which would have to judge every continuation"),
        (STATED, "'grounding' compares the texts of a whole rollout"),
    ],
)
def test_settings_without_credit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_creditable(preset("smoke", settings))
    for trained in (MEASURED, {"schedule": [{"iteration": 1, "set": MEASURED}]}):
        with pytest.raises(
            ConfigError, match=rf"update\.advantage = 'monte_carlo' needs measured credit, and .*{message}"
        ):
            preset("smoke", {**settings, **trained})


def test_reward_by_single_texts_is_credited() -> None:
    config = preset("smoke", {**STATED, **MEASURED, "reward.options.grounding.frequent_texts": 0})
    assert check_creditable(config) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BanditByTheClock", r"cannot be replayed \(what its arms pay"),
        ("LonelyBandit", "continuations need copies .*: there is only"),
    ],
)
def test_environment_without_credit_is_refused(name: str, message: str) -> None:
    settings = {"environment": {"type": f"{__name__}:{name}"}, **SHORT}
    with pytest.raises(ConfigError, match=message):
        check_creditable(preset("smoke", settings))
    later = preset("smoke", {**settings, "schedule": [{"iteration": 1, "set": MEASURED}]})
    assert re.search(rf"^update\.advantage = 'monte_carlo' needs measured credit, and .*{message}", credit_fault(later))
    assert credit_fault(preset("smoke", settings)) == ""


def test_run_without_credit_does_not_start() -> None:
    settings = {"environment": {"type": f"{__name__}:BanditByTheClock"}, **SHORT}
    assert check_ready(preset("smoke", settings), "mine") is None
    with pytest.raises(ConfigError, match=r"^mine: update\.advantage = 'monte_carlo' needs measured credit, and "):
        check_ready(preset("smoke", {**settings, **MEASURED}), "mine")
