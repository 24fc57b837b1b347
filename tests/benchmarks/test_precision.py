"""Difference between the log-probs of a rollout and those of the learner, for every pair of dtypes; on the GPU if there
is one, and with vLLM only where this environment has it.

STARPO_MODEL=folder pytest -m benchmark tests/benchmarks/test_precision.py -s
"""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.device import Device
from starpo.ragen.store import Store
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]
DTYPES = ("float32", "bfloat16", "float16")


def test_the_default_pair_has_no_gap(tmp_path: Path) -> None:
    folder = os.environ.get("STARPO_MODEL")
    policy = {"policy": {"type": "pretrained", "name_or_path": folder}} if folder else {}
    store, gaps = Store(str(tmp_path)), {}
    engines = ["torch"] + ["vllm"] * (find_spec("vllm") is not None)
    print(f"\n{folder or 'embedded policy'} on {Device.here()}: nats, mean (largest)")
    for engine, played in ((engine, dtype) for engine in engines for dtype in DTYPES):
        for learned in DTYPES:
            settings = {"rollout.engine": engine, f"rollout.{engine}.dtype": played, "update.dtype": learned}
            config = preset("smoke", {**policy, **settings, "filter.should_drop_zero_variance": False})
            checkpoint = warm_start(config).carry_out(store)["checkpoint"]
            turns = rollout(0, config, checkpoint).carry_out(store)
            rewards = reward(config.reward, turns["turns"]).carry_out(store)
            selection = variance_filter(config.filter, turns["turns"], rewards["rewards"]).carry_out(store)
            data = {name: keys[name] for keys in (turns, rewards, selection) for name in keys if name != "metrics"}
            data.pop("siblings", None)
            key = update(config, 0, checkpoint, checkpoint, data).carry_out(store)["checkpoint"]
            headline = store.manifest("checkpoint", key).headline
            mean, largest = (headline[f"update/old_behaviour_gap_{name}"] for name in ("mean", "max"))
            gaps[engine, played, learned] = mean
            print(f"  {engine:6} {played:9} learner {learned:9} {mean:.1e} ({largest:.1e})")
    assert gaps["torch", "float32", "float32"] < 1e-4 < gaps["torch", "bfloat16", "float32"]
