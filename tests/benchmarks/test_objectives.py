"""Cost of the parts of an objective: updates with each of them, alternating with GRPO's.

pytest -m benchmark tests/benchmarks/test_objectives.py -s
"""

import statistics
import time
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.runs.update import stored_trajectories, update_context
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import recorded_data

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3000), pytest.mark.usefixtures("prefect_server")]
ROUNDS = 5
RUN = {
    "iterations": 2, "evaluation.every": 100, "evaluation.variants": {},
    "teacher.type": "policy", "teacher.checkpoint": "first", "teacher.top_k": 32,
}  # fmt: skip
PARTS = {
    "gigpo": {"advantage": "gigpo", "advantage_scale": "none"},
    "hgpo": {"advantage": "hgpo", "advantage_scale": "none"},
    "rloo": {"advantage": "rloo", "advantage_scale": "none"},
    "opo": {"advantage": "opo"},
    "otb": {"advantage": "otb", "advantage_scale": "none"},
    "reward_to_go": {"advantage": "reward_to_go", "advantage_scale": "none", "should_whiten": True},
    "masks": {"loss_on": "answer", "advantage_on": "answer"},
    "sequence": {"ratio": "sequence"},
    "turn_arithmetic": {"ratio": "turn_arithmetic"},
    "dual_clip": {"surrogate": "dual_clip"},
    "cispo": {"surrogate": "cispo"},
    "sapo": {"surrogate": "sapo"},
    "gmpo": {"surrogate": "gmpo"},
    "clip_cov": {"surrogate": "clip_cov"},
    "kl_cov": {"surrogate": "kl_cov"},
    "dppo_tv": {"surrogate": "dppo_tv", "ratio_to": "behaviour"},
    "dppo_kl": {"surrogate": "dppo_kl", "ratio_to": "behaviour"},
    "importance of sequences": {"importance_cap": 2.0, "importance_unit": "sequence", "importance_outside": "mask"},
    "negative_max_kl": {"negative_max_kl": 0.5},
    "maxrl": {"advantage": "maxrl", "advantage_scale": "none"},
    "gdpo": {"advantage": "gdpo", "advantage_scale": "none"},
    "luspo": {"ratio": "sequence", "aggregation": "dr_grpo"},
    "uncertain_share": {"uncertain_share": 0.2},
    "distillation, sampled": {"distillation_coefficient": 1.0},
    "distillation, reverse KL": {"distillation_coefficient": 1.0, "distillation": "reverse_kl"},
    "distillation, forward KL": {"distillation_coefficient": 1.0, "distillation": "forward_kl"},
    "shaping": {"shaping": ["by_length", "by_group_std", "by_kept_share", "asymmetric_clip"]},
}


def test_method_costs_little_beyond_grpo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_WANDB_MODE", "offline")
    config = preset("sokoban", RUN)
    store = Store(str(tmp_path / "store"))
    stages = store.runs.iterations(starpo(config, preset="sokoban", store=store.url))
    work = store.manifest("checkpoint", stages[1]["update"]["checkpoint"])
    assert work.seed is not None
    checkpoint, reference = work.inputs["checkpoint"], stages[0]["warm_start"]["checkpoint"]
    data = {**work.inputs, **recorded_data(stages[1])}

    def seconds(changed: dict) -> float:
        update = UpdateConfig.model_validate({**config.update.model_dump(), **changed})
        learner = TorchLearner(update, num_threads=2)
        learner.load(
            store.local_folder("checkpoint", checkpoint), checkpoint, store.local_folder("checkpoint", reference)
        )
        started = time.perf_counter()  # includes assembly, in which masks tokenise texts
        trajectories, kept_share = stored_trajectories(store, update.needs, data)
        learner.update(trajectories, update_context(work.settings, work.seed, kept_share))
        return time.perf_counter() - started

    for name, changed in PARTS.items():
        ratios = [seconds(changed) / seconds({}) for _ in range(ROUNDS)]
        print(f"{name}: {statistics.median(ratios):.3f} of GRPO's update ({min(ratios):.3f} to {max(ratios):.3f})")
