"""Fine-tuning of a pretrained policy on the solver's play, with adapters or all weights: results and saved files."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from starpo.ragen.agents.policy.initial_states import read_states
from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy, TinyPolicy
from starpo.ragen.config.update import LoraConfig
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.learning.demonstrations import demonstrate_turns
from starpo.ragen.learning.imitation import fine_tune, imitate

LAKE = FrozenLakeSettings(observation="compact", slip=0.0)
AGENT = AgentConfig(prompt="state", context="window", window_turns=1, should_show_reward=False)
LORA = FineTuning(
    demonstration_turns=64, steps=60, batch_size=16, learning_rate=2e-2, lora=LoraConfig(rank=8, alpha=16)
)
FULL = LORA.model_copy(update={"lora": None, "learning_rate": 3e-3})
MUON = FULL.model_copy(update={"matrix_learning_rate": 0.02})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Small model trained a little on another game, as it might come from a hub."""
    folder = tmp_path_factory.mktemp("hub")
    sizes = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}
    policy = TinyPolicy(**sizes, warm_start_steps=60, warm_start_batch_size=16, demonstration_turns=200)
    imitate(policy, BanditSettings(), AGENT, 64, frozenset(), folder)
    (folder / "initial_states.json").unlink()
    return str(folder)


def tuned(folder: str, config: FineTuning, to: Path, **changes) -> dict[str, float]:
    to.mkdir(exist_ok=True)
    policy = PretrainedPolicy(name_or_path=folder, fine_tuning=config)
    excluded = changes.pop("excluded", frozenset())

    tokenizer = load_tokenizer(folder)
    demonstrations = demonstrate_turns(config, LAKE, AGENT, 64, excluded, tokenizer, config.demonstration_turns)
    return fine_tune(policy, demonstrations, to, **changes)


def logprob(folder: str) -> float:
    """Mean log-prob of the solver's responses under the policy in a folder, nats per token."""
    model, tokenizer = load_policy(folder)
    played = demonstrate_turns(FineTuning(), LAKE, AGENT, 64, frozenset(), tokenizer, 20)
    losses = []
    for prompt, response in zip(played.prompts, played.responses, strict=True):
        labels = torch.tensor([[-100] * len(prompt) + response])
        losses.append(model(input_ids=torch.tensor([prompt + response]), labels=labels).loss.item())
    return -sum(losses) / len(losses)


@pytest.mark.ci
def test_muon_has_the_matrices(folder: str, tmp_path: Path) -> None:
    without, with_muon = (tuned(folder, config, tmp_path / name) for name, config in (("a", FULL), ("m", MUON)))
    assert with_muon["loss"] < without["loss"]


@pytest.mark.ci
@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_fine_tuning_learns_whole_policy(folder: str, config: FineTuning, tmp_path: Path) -> None:
    before, progress = torch.get_rng_state(), []
    headline = tuned(folder, config, tmp_path, on_progress=lambda done, total: progress.append((done, total)))
    assert torch.equal(torch.get_rng_state(), before)
    assert progress[-1] == (60, 60)
    assert headline["loss"] < 0.9 * -logprob(folder)
    assert headline["demonstration_success"] == 1.0
    assert not list(tmp_path.glob("adapter*"))
    (model, _), (original, _) = load_policy(tmp_path), load_policy(folder)
    weights, others = model.state_dict(), original.state_dict()
    assert weights.keys() == others.keys()
    changed = {name for name in weights if not torch.equal(weights[name], others[name])}
    assert "model.layers.0.self_attn.q_proj.weight" in changed
    assert ("model.embed_tokens.weight" in changed) == (config is FULL)


@pytest.mark.gpu
@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_fine_tuning_repeats_bytes_on_gpu(folder: str, tmp_path: Path, config: FineTuning) -> None:
    short = config.model_copy(update={"steps": 5, "dtype": "bfloat16"})
    for name in ("first", "again"):
        tuned(folder, short, tmp_path / name)
    first, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again"))
    assert first == again


@pytest.mark.ci
def test_dropout_model_learns_without_it(folder: str, tmp_path: Path) -> None:
    """Dropout would draw from torch's global generator: the bytes would differ, and so would the generator's state."""
    dropping, before = tmp_path / "dropping", torch.get_rng_state()
    shutil.copytree(folder, dropping)
    config = json.loads((dropping / "config.json").read_text())
    (dropping / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    short = FULL.model_copy(update={"steps": 5})
    for name, source in (("first", dropping), ("again", dropping), ("without", folder)):
        tuned(str(source), short, tmp_path / name)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again", "without")]
    assert weights[0] == weights[1] == weights[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_padding_token_does_not_matter(folder: str, tmp_path: Path) -> None:
    """The first Llama models have -1, which is not a token."""
    shutil.copytree(folder, tmp_path / "unpadded")
    file = tmp_path / "unpadded" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token_id": -1}))
    short = LORA.model_copy(update={"steps": 5})
    for name, source in (("without", tmp_path / "unpadded"), ("with", folder)):
        tuned(str(source), short, tmp_path / name)
    without, with_padding = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("without", "with"))
    assert without == with_padding


def test_excluded_states_never_demonstrated_known_kept(folder: str, tmp_path: Path) -> None:
    short = LORA.model_copy(update={"steps": 1})
    excluded = frozenset(demonstrate_turns(short, LAKE, AGENT, 64, frozenset(), make_tokenizer(), 8).initial_states)
    tuned(folder, short, tmp_path, excluded=excluded, met=["a" * 64])
    states = read_states(tmp_path)
    assert "a" * 64 in states
    assert len(states) > 10
    assert not excluded & set(states)
