"""What a teacher's stage costs beside scoring the same rollout with the policy: side by side in one process, as ratios.

pytest -m benchmark tests/benchmarks/test_teacher.py -s
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.flows.console.start import train_here
from starpo.flows.console.terminal import Console
from starpo.flows.presets import preset
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.measuring import token_logprobs
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.update import stored_trajectories
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import recorded_data
from starpo.tasks.teacher import teacher

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]
ROUNDS = 7
ROLLOUT = {
    "iterations": 1, "rollout.num_groups": 16, "rollout.group_size": 8, "evaluation.variants": {},
    "diagnostics.probe_every": 0, "filter.strategy": "none", "update.kl_coefficient": 0.0,
}  # fmt: skip
TEACHERS = {
    "a checkpoint": {"teacher.type": "policy", "teacher.checkpoint": "first"},
    "its 32 most probable tokens, too": {
        "teacher.type": "policy", "teacher.checkpoint": "first", "teacher.top_k": 32,
    },
    "the policy, told the plan": {"teacher.type": "policy", "teacher.checkpoint": "first", "teacher.hint": "plan"},
    "the policy, told the outcome": {
        "teacher.type": "policy", "teacher.checkpoint": "first", "teacher.hint": "outcome",
    },
}  # fmt: skip
LIMIT = 1.3


def cpu_s(do: Callable[[], object]) -> float:
    """CPU seconds of all threads, which other work on the machine changes least."""
    started = time.process_time()
    do()
    return time.process_time() - started


@pytest.mark.parametrize("preset_name", ["smoke"])
def test_stage_costs_as_much_as_scoring(tmp_path: Path, preset_name: str) -> None:
    store, config = Store(str(tmp_path)), preset(preset_name, ROLLOUT)
    train_here(store, "run", preset_name, config, Console(quiet=True))
    stages = store.runs.iterations("run")[0]
    data, first = recorded_data(stages), stages["warm_start"]["checkpoint"]
    context = UpdateContext(0, 1, 0, config.rollout.temperature, config.rollout.max_response_tokens)
    with ModelPlacement(is_here=True) as placement:

        def score() -> None:
            trajectories, _ = stored_trajectories(store, config.update.needs, data, should_keep_all=True)
            token_logprobs(placement.learner.at(store, first, config.update, None), trajectories, context)

        def teach(name: str) -> Callable[[], object]:
            work = teacher(preset(preset_name, ROLLOUT | TEACHERS[name]), 0, first, data["turns"])
            return lambda: list(work.do(work, store, placement))

        kinds = {name: teach(name) for name in TEACHERS}
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(ROUNDS + 1):
            alone = cpu_s(score)
            for name, do in kinds.items():
                ratio = cpu_s(do) / alone
                if number:  # the first round loads the models
                    times[name].append(ratio)
            print(f"scoring with the policy: {alone:.2f} s of CPU")
    for name, ratios in times.items():
        print(f"{name}: {statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")
    assert statistics.median(times["a checkpoint"]) <= LIMIT
