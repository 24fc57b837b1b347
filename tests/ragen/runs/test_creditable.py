"""What cannot be credited is refused in a sentence, by `starpo credit` and where a run trains on it."""

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
MEASURED = {"update.advantage": "monte_carlo", "filter.should_drop_zero_variance": False}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rollout.search.type": "best_of", "update.search_rows": "weigh"}, r"were chosen by search \('best_of'\)"),
        ({"agent.observation": "image", "policy.patch_size": 32}, "prompts show images"),
        (JUDGED, "'judge' asks a server, which would have to judge every continuation"),
        (STATED, "'grounding' compares the texts of a whole rollout"),
        ({"environment": {"type": f"{__name__}:BanditByTheClock"}, **SHORT}, r"cannot be replayed \(what its arms pay"),
        ({"environment": {"type": f"{__name__}:LonelyBandit"}, **SHORT}, "continuations need copies .*: there is only"),
    ],
)
def test_uncreditable_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    config = preset("smoke", {**MEASURED, **settings})
    with pytest.raises(ConfigError, match=message):
        check_creditable(config)
    assert credit_fault(config).startswith("update.advantage = 'monte_carlo' trains on measured credit, and ")
    assert credit_fault(preset("smoke", settings)) == ""


def test_run_with_uncreditable_phase_is_refused() -> None:
    later = {**STATED, "schedule": [{"iteration": 1, "set": {"update.advantage": "monte_carlo"}}]}
    with pytest.raises(ConfigError, match=r"mine: update\.advantage = 'monte_carlo' trains on measured credit"):
        check_ready(preset("smoke", later), "mine")
    few = {**later, "reward.options.grounding.frequent_texts": 0}
    assert credit_fault(preset("smoke", few)) == ""
