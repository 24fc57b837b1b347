"""What has no effect is not in the settings that stage keys are made of."""

import pytest
from pydantic import ValidationError

from ragen.config.update import DeepSpeedConfig, LoraConfig, UpdateConfig


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


@pytest.mark.parametrize("place", ["optimiser", "critic.optimiser"])
def test_muon_is_refused_with_deepspeed(place):
    muon = {"type": "muon"}
    settings = {"optimiser": muon} if place == "optimiser" else {"critic": {"optimiser": muon}}
    with pytest.raises(ValidationError, match=rf"update\.{place}\.type = 'muon' .* set it to 'adamw'"):
        UpdateConfig.model_validate({"learner": "deepspeed", **settings})
    UpdateConfig.model_validate({"learner": "deepspeed", "advantage": "grpo", "critic": {"optimiser": muon}})
