"""What an update costs besides learning: with a checkpoint that is written, and with one that is only hashed.

    pytest -m benchmark tests/benchmarks/test_checkpoints.py -s

Updates of all weights, one after the other on the same few trajectories, as with Online-k: SmolLM2-135M, and random
weights of its architecture at 0.5B. Targets with two cores, for a checkpoint that is not kept: 1 s and 4 s.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys
from starpo.ragen.store import Store
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
NUM_UPDATES = {"smollm2": 5, "large": 3}
SETTINGS = {
    "policy.fine_tuning": None, "rollout.num_groups": 2, "rollout.group_size": 2, "agent.max_turns": 1,
    "filter.should_drop_zero_variance": False,
}  # fmt: skip
LARGE = {
    "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 46, "num_attention_heads": 15,
    "num_key_value_heads": 5, "head_dim": 64,
}  # fmt: skip
"""Sizes of SmolLM2-360M with 46 layers in place of 32: 500 million parameters."""


def config_of(folder: str) -> StarPOConfig:
    return preset("sokoban-smollm2", {**SETTINGS, "policy.name_or_path": folder})


@pytest.fixture(scope="module")
def played(smollm2: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Keys]:
    """A store, and the data of an update; any model with this vocabulary can be trained on it."""
    store, config = Store(str(tmp_path_factory.mktemp("store"))), config_of(smollm2)
    keys = rollout(0, config, warm_start(config).carry_out(store)["checkpoint"]).carry_out(store)
    keys |= reward(config.reward, keys["turns"], 0, None).carry_out(store)
    keys |= variance_filter(config.filter, keys["turns"], keys["rewards"], []).carry_out(store)
    return store, {kind: keys[kind] for kind in ("turns", "rewards", "selection")}


@pytest.fixture
def large(smollm2: str, tmp_path: Path) -> str:
    config = AutoConfig.from_pretrained(smollm2)
    config.update({**LARGE, "layer_types": None, "dtype": "float32"})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    save_policy(model, AutoTokenizer.from_pretrained(smollm2), tmp_path / "large")
    return str(tmp_path / "large")


@pytest.mark.parametrize("model", ["smollm2", "large"])
def test_unkept_checkpoints_cost_little(
    played: tuple[Store, Keys], model: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store, data), folder = played, request.getfixturevalue(model)
    config, inside = config_of(folder), {"learning": 0.0, "saving": 0.0}

    def timed(name: str, call: Any) -> Any:
        def work(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                inside[name] = time.perf_counter() - started

        return work

    for method, name in {"update": "learning", "save": "saving", "save_policy": "saving"}.items():
        monkeypatch.setattr(TorchLearner, method, timed(name, getattr(TorchLearner, method)))
    placement = ModelPlacement()
    first = checkpoint = warm_start(config).carry_out(store)["checkpoint"]
    figures: dict[str, Any] = {"model": model}
    iteration = 0
    for is_kept in (True, False):
        seconds: dict[str, list[float]] = {"outside": [], "saving": [], "learning": []}
        written = []
        for _ in range(NUM_UPDATES[model]):
            work = update(config, iteration, checkpoint, first, data, is_kept=is_kept)
            started = time.perf_counter()
            checkpoint = work.carry_out(store, placement)["checkpoint"]
            inside["outside"] = time.perf_counter() - started - inside["learning"]
            for name, measured in seconds.items():
                measured.append(inside[name])
            places = [Path(store.url, kind, key) for kind, key in work.keys.items()]
            written.append(sum(file.stat().st_size for place in places for file in place.iterdir()))
            if iteration:
                store.drop("checkpoint", work.inputs["checkpoint"])
            iteration += 1
        figures["written" if is_kept else "hashed"] = {
            "stored_bytes": max(written),
            "outside_s": [round(one, 3) for one in seconds["outside"]],
            **{f"median_{name}_s": round(statistics.median(all_s[1:]), 3) for name, all_s in seconds.items()},
        }  # without the first, which loads the checkpoint
    print(json.dumps(figures))
    placement.close()
    assert figures["hashed"]["stored_bytes"] < 1e6
