"""What decides advantages: objectives with the same estimator have one name, others have different ones."""

import pytest

from starpo.flows.presets import METHODS, method, preset
from starpo.ragen.config.estimation import estimator_name
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.update import UpdateConfig


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"advantage": "grpo"}, "grpo"),
        ({"advantage": "grpo", "surrogate": "cispo", "kl_coefficient": 0.1, "std_ddof": 1, "gamma_turn": 1.0}, "grpo"),
        ({"advantage": "grpo", "advantage_scale": "group", "std_ddof": 1}, "grpo advantage_scale=group std_ddof=1"),
        (
            {"advantage": "gae", "should_whiten": True, "gae_lambda": 0.95, "reward_placement": "trajectory_end"},
            "gae should_whiten=true gae_lambda=0.95 reward_placement=trajectory_end",
        ),
        (
            {"advantage": "rloo", "kl_coefficient": 0.1, "kl_estimator": "k1", "kl_placement": "reward"},
            "rloo kl_coefficient=0.1 kl_estimator=k1",
        ),
        (
            {"advantage": "gigpo", "advantage_options": {"step_weight": 0.5}, "shaping": ["by_length", "by_group_std"]},
            "gigpo step_weight=0.5 shaping=by_length+by_group_std",
        ),
        ({"advantage": "istar", "prm": {"beta": 0.5}}, "istar prm.beta=0.5"),
    ],
)
def test_name_holds_what_decides_advantages(settings, name) -> None:
    assert estimator_name(UpdateConfig.model_validate(settings)) == name


def test_methods_share_estimators() -> None:
    base, users = preset("smoke"), dict[str, list[str]]()
    for one in METHODS.names():
        config = apply_overrides(base, {"rollout.num_greedy": 1, **method(one)}, one)
        users.setdefault(estimator_name(config.update), []).append(one)
    assert {"grpo", "cispo", "gspo", "dapo"} <= set(users["grpo advantage_scale=group"])
    assert users["grpo"] == ["dr_grpo", "seeupo"]
    assert len(users) < len(METHODS.names())
