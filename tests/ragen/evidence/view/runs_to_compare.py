"""Small runs to compare: evaluations with given successes, and a training metric."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Stage
from tests.examples import example


def add_run(
    store: Store,
    name: str,
    evaluations: Sequence[Sequence[bool]] = (),
    *,
    first_seed: int = 0,
    preset: str | None = "mine",
    code: dict[str, str] | None = None,
    **settings: Any,
) -> None:
    """Store a run that was evaluated at iterations 0, 1, ..: the success on each state, counted from `first_seed`."""
    config = {"environment": {"type": "sokoban"}, "seed": 0, **settings}
    store.runs.create(name, flow="starpo", preset=preset, config=config, code=code or {})
    for iteration, successes in enumerate(evaluations):
        evaluate(store, name, iteration, successes, first_seed, config["environment"]["type"])
    store.runs.set_state(name, "completed", "")


def evaluate(
    store: Store, name: str, iteration: int, successes: Sequence[bool], first_seed: int = 0, cell: str = "sokoban"
) -> None:
    """Store an evaluation of a run, and its training success, which is the same."""
    template = example("episodes").slice(0, 1).to_pylist()[0]
    rows = [
        {
            **template,
            "cell": cell,
            "member": 0,
            "env_seed": first_seed + number,
            "initial_state_digest": f"{first_seed + number:016x}",
            "status": "ok",
            "success": success,
        }
        for number, success in enumerate(successes)
    ]
    rate = sum(successes) / len(successes)
    headline = {f"evaluation/{cell}/success{end}": rate + of for end, of in (("", 0), ("_low", -0.1), ("_high", 0.1))}
    values = {**headline, "rollout/success_rate": rate}
    tables = {
        "episodes": pa.Table.from_pylist(rows, DATASETS["episodes"].schema),
        "metrics": metrics_table(iteration, f"evaluate:{cell}", values),
    }
    settings = {"run": name, "iteration": iteration, "panel": str(first_seed)}
    stage = Stage(name=f"evaluate:{cell}", version=1)
    facts = Facts(
        key=stage_key(stage, settings, {}, 0), stage=stage, settings=settings, inputs={}, seed=0, headline=headline
    )
    for kind, table in tables.items():
        store.put_table(kind, table, facts)
    store.runs.record_stage(name, iteration, stage.name, dict.fromkeys(tables, facts.key))
