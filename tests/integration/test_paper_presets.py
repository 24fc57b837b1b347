"""One iteration of every preset with the paper's settings, with a stand-in for the model.

The stand-in is a tiny random Qwen2 with Qwen2.5's own chat template. Settings are the preset's except for sizes, and
for the engine and learner, which are the single-process ones.
"""

from pathlib import Path

import pytest

from starpo.flows.presets import names, preset
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.store import Store
from tests.integration.training import train_run
from tests.ragen.agents.prompting.conftest import tokenizer_of

pytestmark = pytest.mark.timeout(600)

SMALLER = {
    "iterations": 1,
    "rollout.engine": "torch",
    "rollout.num_groups": 4,
    "rollout.group_size": 2,
    "rollout.shard_groups": 4,
    "rollout.max_response_tokens": 8,
    "rollout.max_context_tokens": 8192,
    "agent.max_turns": 1,
    "update.learner": "torch",
    "update.dtype": "float32",
    "filter.should_drop_zero_variance": False,  # random weights never answer, so no group has variance
    "evaluation.num_prompts": 2,
}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with the stand-in, which has one token per byte and the two special tokens of the template."""
    tokenizer = tokenizer_of("qwen2.5")
    tokenizer.add_special_tokens({"pad_token": "<|endoftext|>"})
    sizes = TinyPolicy(
        hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16, max_positions=8192
    )
    folder = tmp_path_factory.mktemp("stand-in")
    save_policy(make_model(sizes, tokenizer), tokenizer, folder)
    return str(folder)


@pytest.mark.parametrize("name", [name for name in names() if "-paper" in name])
def test_paper_preset_runs_an_iteration(name: str, stand_in: str, tmp_path: Path) -> None:
    config = preset(name, {**SMALLER, "policy.name_or_path": stand_in, "policy.dtype": "float32"})
    if config.update.lora is not None:
        pytest.importorskip("peft", reason="LoRA needs the package peft")
    run = train_run(config, preset=name, store=str(tmp_path), run="mine")
    store = Store(str(tmp_path))
    stages = store.runs.iterations(run)
    assert {"warm_start", "rollout", "reward", "variance_filter", "update"} <= set(stages[0])
    assert {f"evaluate:{panel}" for panel in config.evaluation.variants} <= set(stages[1])
    turns = store.read_table("turns", stages[0]["rollout"]["turns"])
    assert turns.num_rows == 8
    samples = store.read_table("samples", stages[0]["update"]["samples"])
    kept = 2 if config.filter.strategy == "top_fraction" else 8
    assert samples.num_rows == kept
    assert store.runs.state(run).status == "completed"
