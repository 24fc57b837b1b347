"""Checkpoint folders: loading by transformers, exact round trips, and refused folders."""

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from starpo.ragen.config.update import LoraConfig
from starpo.ragen.core.errors import LearnerError, PolicyError
from starpo.ragen.learning.learners.models.adapters import copied
from starpo.ragen.learning.learners.models.checkpoint import (
    Checkpoint,
    TrainerState,
    load_checkpoint,
    save_checkpoint,
    save_policy,
)
from starpo.ragen.learning.learners.models.critic import Critic
from starpo.ragen.store.artifacts.files import entries_of


@pytest.fixture
def checkpoint(policy_folder) -> Checkpoint:
    loaded = load_checkpoint(policy_folder)
    critic = Critic.from_policy(loaded.policy)
    critic.head.bias.data.fill_(0.125)
    loaded.companions["critic"] = critic
    loaded.optimiser_states = {
        "policy": {"adamw/exp_avg/w": torch.arange(3.0)},
        "critic": {"muon/momentum/w": torch.ones(1)},
    }
    loaded.trainer = TrainerState(num_updates=4, num_steps=12, optimisers={"policy": "adamw", "critic": "muon"})
    return loaded


def test_policy_folder_loads_as_step_zero(policy_folder):
    checkpoint = load_checkpoint(policy_folder)
    assert checkpoint.trainer == TrainerState()
    assert checkpoint.companions == {}
    assert checkpoint.optimiser_states == {}


def test_round_trip(checkpoint, tmp_path):
    save_checkpoint(checkpoint, str(tmp_path / "c"))
    again = load_checkpoint(str(tmp_path / "c"))
    assert again.trainer == checkpoint.trainer
    assert again.copied_files == checkpoint.copied_files
    assert list(again.trained) == ["policy", "critic"]
    for name, one in checkpoint.trained.items():
        other = again.trained[name]
        assert one.state_dict().keys() == other.state_dict().keys()
        assert all(torch.equal(a, other.state_dict()[key]) for key, a in one.state_dict().items())
    assert again.optimiser_states["policy"]["adamw/exp_avg/w"].tolist() == [0, 1, 2]
    assert again.optimiser_states["critic"]["muon/momentum/w"].tolist() == [1]


def test_checkpoint_bytes_are_independent_of_path(checkpoint, tmp_path):
    save_checkpoint(checkpoint, str(tmp_path / "a"))
    save_checkpoint(load_checkpoint(str(tmp_path / "a")), str(tmp_path / "elsewhere" / "b"))
    first = {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()}
    second = {f.name: f.read_bytes() for f in (tmp_path / "elsewhere" / "b").iterdir()}
    assert first == second
    assert not any(str(tmp_path).encode() in content for content in first.values())


@pytest.mark.parametrize("lora", [None, LoraConfig()])
def test_save_policy_returns_entries_of_checkpoint(policy_folder, tmp_path, lora):
    loaded = load_checkpoint(policy_folder, lora, key="base")
    loaded.companions = {"critic": Critic.from_policy(loaded.policy), "prm": copied(loaded.policy)}
    loaded.optimiser_states = {"policy": {"adamw/exp_avg/w": torch.arange(3.0)}}
    save_checkpoint(loaded, str(tmp_path / "whole"))
    assert save_policy(loaded, str(tmp_path / "policy")) == entries_of(tmp_path / "whole")
    whole, alone = ({path.name for path in (tmp_path / name).iterdir()} for name in ("whole", "policy"))
    assert whole - alone == {"critic.safetensors", "prm.safetensors", "optimiser.safetensors", "trainer.json"}


def test_checkpoint_loads_in_transformers(checkpoint, policy_folder, tmp_path):
    save_checkpoint(checkpoint, str(tmp_path / "c"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "c")
    assert torch.equal(model.lm_head.weight, checkpoint.policy.lm_head.weight)
    text = "Up || Down"
    expected = AutoTokenizer.from_pretrained(policy_folder).encode(text)
    assert AutoTokenizer.from_pretrained(tmp_path / "c").encode(text) == expected


def test_nothing_in_it_is_pickled(checkpoint, tmp_path):
    save_checkpoint(checkpoint, str(tmp_path / "c"))
    suffixes = {f.suffix for f in (tmp_path / "c").iterdir()}
    assert suffixes <= {".json", ".safetensors", ".jinja", ".txt"}


def test_save_to_nonempty_folder_fails(checkpoint, tmp_path):
    (tmp_path / "something").write_text("")
    with pytest.raises(LearnerError, match="not empty"):
        save_checkpoint(checkpoint, str(tmp_path))


@pytest.mark.parametrize("other", ["critic", "prm"])
def test_save_without_disk_space_writes_nothing(policy_folder, other, tmp_path, monkeypatch):
    checkpoint = load_checkpoint(policy_folder)
    of_policy = sum(tensor.nbytes for tensor in checkpoint.policy.state_dict().values())
    begin = Critic.from_policy if other == "critic" else copied
    checkpoint.companions[other] = begin(checkpoint.policy)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=of_policy + 1000))  # the policy fits
    with pytest.raises(OSError, match="a checkpoint needs at least") as refused:
        save_checkpoint(checkpoint, str(tmp_path / "c"))
    assert refused.value.errno == errno.ENOSPC
    assert list((tmp_path / "c").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer.json", b"{"),
        ("trainer.json", json.dumps({"steps": 1}).encode()),
        ("optimiser.safetensors", b"cut"),
        ("critic.safetensors", b""),
        ("optimiser.safetensors", None),
    ],
)
def test_damaged_training_state_raises_policy_error(checkpoint, tmp_path, name, content):
    save_checkpoint(checkpoint, str(tmp_path / "c"))
    path = Path(tmp_path / "c" / name)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(PolicyError, match=r"training state in .* is damaged"):
        load_checkpoint(str(tmp_path / "c"))


def test_critic_of_other_model_is_rejected(checkpoint, tmp_path):
    save_checkpoint(checkpoint, str(tmp_path / "c"))
    shutil.copy(tmp_path / "c" / "model.safetensors", tmp_path / "c" / "critic.safetensors")
    with pytest.raises(PolicyError, match="belongs to another model"):
        load_checkpoint(str(tmp_path / "c"))
