"""Update that computes every shared prefix once, against the plain one, with each segment in its own row; and what the
policy's scores before and after it cost (`update.scored_share`).

pytest -m benchmark tests/benchmarks/test_update.py -s
"""

import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.learning.learners.data import batches
from starpo.ragen.learning.learners.data.prefix_rows import PrefixRow, prefix_rows
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.ragen.learning.learners.learner import UpdateContext, UpdateResult
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.store import Store

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200), pytest.mark.usefixtures("prefect_server")]
ROUNDS = 5


def rows_apart(token_ids: Sequence[np.ndarray], indices: Iterable[int], _: int) -> list[PrefixRow]:
    """Put every segment in its own row, even identical ones."""
    return [row for index in indices for row in prefix_rows(token_ids, [index], 0)]


@pytest.mark.parametrize(("context", "iterations"), [("window", 11), ("full", 3)])
def test_update_cost_follows_distinct_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str, iterations: int
) -> None:
    monkeypatch.setenv("STARPO_WANDB_MODE", "offline")
    changed = {"iterations": iterations, "agent.context": context, "evaluation.every": 100, "evaluation.variants": {}}
    config = preset("sokoban", changed)
    store, last = Store(str(tmp_path / "store")), iterations - 1
    stages = store.runs.iterations(starpo(config, preset="sokoban", store=store.url))
    tables = {"turns": "rollout", "rewards": "reward", "selection": "variance_filter"}
    trajectories = assemble(*(store.read_table(kind, stages[last][stage][kind]) for kind, stage in tables.items()))
    key, reference = stages[last - 1]["update"]["checkpoint"], stages[0]["warm_start"]["checkpoint"]
    sampling = config.rollout.sampling
    where = UpdateContext(last, iterations, 0, sampling.temperature, sampling.max_response_tokens)

    def timed(share: float = 1.0) -> tuple[float, UpdateResult]:
        learner = TorchLearner(config.update.model_copy(update={"scored_share": share}), num_threads=2)
        learner.load(store.local_folder("checkpoint", key), key, store.local_folder("checkpoint", reference))
        started = time.perf_counter()
        result = learner.update(trajectories, where)
        return time.perf_counter() - started, result

    shared_s, plain_s, eighth_s = [], [], []
    for _ in range(ROUNDS):
        seconds, shared = timed()
        shared_s.append(seconds)
        with monkeypatch.context() as patch:
            patch.setattr(batches, "prefix_rows", rows_apart)
            seconds, plain = timed()
        plain_s.append(seconds)
        seconds, eighth = timed(1 / 8)
        eighth_s.append(seconds)
    assert eighth.metrics["update/old_is_from_rollout"] == 1
    ratios = [plain / shared for plain, shared in zip(plain_s, shared_s, strict=True)]
    savings = [1 - eighth / shared for eighth, shared in zip(eighth_s, shared_s, strict=True)]
    norms = [result.metrics["update/gradient_norm"] for result in (shared, plain, eighth)]
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-3)
    print(
        f"{context}: an update {statistics.median(shared_s):.2f} s, plain {statistics.median(plain_s):.2f} s; "
        f"{statistics.median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"gradient norms {norms[0]:.6f}, {norms[1]:.6f}; an eighth scored: {statistics.median(eighth_s):.2f} s, "
        f"{statistics.median(savings):.0%} less ({min(savings):.0%} to {max(savings):.0%})"
    )
