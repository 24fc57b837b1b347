"""Options of the built-in reward components: defaults and checks."""

import pytest

from starpo.ragen.config.agent import FORMS
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.sokoban.environment import SokobanSettings

CONFIG = StarPOConfig(
    environment=SokobanSettings(),
    policy=PretrainedPolicy(name_or_path="somewhere"),
    agent={"form": "grounding_worldmodeling"},
)


def test_defaults_are_filled_in() -> None:
    reward = RewardConfig(components=["grounding", "agreement"], options={"grounding": {"reward": 1.0}})
    assert reward.options["grounding"]["reward"] == 1.0
    assert reward.options["grounding"]["frequent_penalty"] == -0.1
    assert reward.options["agreement"] == {"reward": 0.5}
    assert RewardConfig.model_validate_json(reward.model_dump_json()) == reward


def test_components_without_options_are_unchanged() -> None:
    assert RewardConfig(options={}).effective() == {
        "components": ["environment", "format", "forfeit"],
        "options": {},
        "format_penalty": -0.1,
        "normalisation": "none",
        "std_ddof": 0,
        "normalisation_scope": "group",
    }


@pytest.mark.parametrize(
    ("component", "options", "message"),
    [
        ("grounding", {"weights": {"box": 0.0}}, "expected weights of at least 0, and at least one above 0"),
        ("format", {"penalty": 1.0}, "'format' takes no options, found penalty"),
    ],
)
def test_wrong_options_are_refused(component: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardConfig(components=[component], options={component: options})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"environment.type": "bandit", "reward.components": ["grounding"]}, "environment 'bandit' does not provide"),
        (
            {"environment.type": "bandit", "reward.components": ["agreement"]},
            "environments that do: sokoban, frozen_lake",
        ),
        (
            {"agent.form": "free", "reward.components": ["grounding"]},
            r"reads <observation> in the reasoning, which agent\.form = 'free' does not have: set agent\.form = "
            "'grounding' or 'grounding_worldmodeling'",
        ),
        ({"agent.form": "grounding", "reward.components": ["world_model"]}, "reads <prediction>"),
        ({"agent.form": "free", "reward.components": ["reasoning_format"]}, "reads <reasoning>"),
        (
            {"agent.form": "free", "agent.should_think": False, "reward.components": ["agreement"]},
            "'agreement' reads the reasoning: set agent.should_think = true",
        ),
        ({"agent.prompt": "state"}, r"would not know of form = 'grounding_worldmodeling': set agent\.prompt = 'full'"),
        (
            {"policy.type": "tiny", "environment.type": "bandit"},
            r"needs demonstrations that state .*environment 'bandit' does not provide.* sokoban, frozen_lake",
        ),
    ],
)
def test_component_never_paying_is_refused(overrides: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply_overrides(CONFIG, overrides)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", [{"policy.type": "tiny"}, {"policy.fine_tuning": {}}])
def test_demonstrations_know_every_form(policy: dict, form: str) -> None:
    assert apply_overrides(CONFIG, {**policy, "agent.prompt": "state", "agent.form": form}).agent.form == form
