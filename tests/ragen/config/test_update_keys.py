"""What has no effect is not in the settings that stage keys are made of."""

import pytest
from pydantic import ValidationError

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.update import DeepSpeedConfig, LoraConfig, UpdateConfig


def test_what_is_off_is_left_out_and_what_is_on_comes_back():
    plain = UpdateConfig()
    dumped = plain.model_dump(mode="json")
    assert not {"lora", "deepspeed", "activation_checkpointing"} & dumped.keys()
    idle = UpdateConfig(deepspeed=DeepSpeedConfig(num_ranks=4))  # of a learner that is not asked
    assert idle.model_dump(mode="json") == dumped
    full = UpdateConfig(
        learner="deepspeed", deepspeed=DeepSpeedConfig(num_ranks=2), lora=LoraConfig(), activation_checkpointing=True
    )
    assert UpdateConfig.model_validate_json(full.model_dump_json()) == full


def test_settings_of_version_0_1_0_are_dumped_as_they_were():
    """Keys and records of updates that use nothing new know nothing of it."""
    new = {"std_ddof", "reward_placement", "ratio_to", "minibatch_trajectories"}
    assert not new & UpdateConfig().model_dump(mode="json").keys()
    used = UpdateConfig(std_ddof=1, reward_placement="trajectory_end", ratio_to="behaviour", minibatch_trajectories=32)
    assert new <= used.model_dump(mode="json").keys()
    assert UpdateConfig.model_validate_json(used.model_dump_json()) == used
    assert "should_malformed_use_actions" not in AgentConfig().model_dump(mode="json")
    kind = AgentConfig(should_malformed_use_actions=False)
    assert AgentConfig.model_validate_json(kind.model_dump_json()) == kind


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"minibatch_trajectories": 32}, {"num_minibatches": 7}),
        ({"advantage": "grpo"}, {"reward_placement": "trajectory_end"}),
        ({"advantage": "grpo"}, {"std_ddof": 1}),
        ({}, {"kl_estimator": "k1"}),
        ({}, {"kl_placement": "reward"}),
    ],
)
def test_what_others_make_idle_is_not_in_the_key(settings, idle):
    assert UpdateConfig(**settings).effective() == UpdateConfig(**settings, **idle).effective()
    (name,) = idle
    acting = {"advantage_scale": "batch", "advantage": "gae", "minibatch_trajectories": 0, "kl_coefficient": 0.1}
    assert UpdateConfig(**{**acting, **idle}).effective()[name] == idle[name]


@pytest.mark.parametrize("advantage", ["gae", "bi_level_gae", "grpo_batch", "reinforce"])
def test_a_scale_by_groups_needs_an_estimator_with_groups(advantage):
    with pytest.raises(ValidationError, match=rf"'{advantage}' compares no trajectory with its group's: set adv"):
        UpdateConfig(advantage=advantage, advantage_scale="group")


@pytest.mark.parametrize("advantage", ["grpo", "rloo"])
def test_a_scale_by_groups_goes_with_groups(advantage):
    assert UpdateConfig(advantage=advantage, advantage_scale="group").has_groups


def test_a_kl_that_is_only_given_a_weight_acts():
    config = UpdateConfig(kl_coefficient=0.1)
    assert (config.kl_estimator, config.kl_placement) == ("k3", "loss")


@pytest.mark.parametrize("place", ["optimiser", "critic.optimiser"])
def test_muon_is_refused_with_deepspeed(place):
    muon = {"type": "muon"}
    settings = {"optimiser": muon} if place == "optimiser" else {"critic": {"optimiser": muon}}
    with pytest.raises(ValidationError, match=rf"update\.{place}\.type = 'muon' .* set it to 'adamw'"):
        UpdateConfig.model_validate({"learner": "deepspeed", **settings})
    UpdateConfig.model_validate({"learner": "deepspeed", "advantage": "grpo", "critic": {"optimiser": muon}})
