"""Outputs of every stage for one fixed input, compared with golden values.

If a stage's outputs change at the same version, its stored results are wrongly reused as results of the new code.

    checkpoint/ -> rollout -> reward -> variance_filter -> diagnose, probe, update, update with a critic,
        credit, update on credit
    checkpoint/ -> rollout with search and greedy members, evaluate

`pytest tests/golden --regenerate-golden` rewrites `stages.json`; review its diff. Integers, text and tokens must be
identical. Real numbers must agree to one in a thousand, since processors round differently.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Facts, Store
from starpo.schemas.datasets import DATASETS
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import Stage
from starpo.tasks.credit import Choice, credit
from starpo.tasks.diagnose import diagnose
from starpo.tasks.evaluate import evaluate
from starpo.tasks.probe import probe
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start
from tests.examples import put_folder

CHECKPOINT = Path(__file__).parent / "checkpoint"
GOLDEN = Path(__file__).parent / "stages.json"
TOLERANCE = 1e-3

CONFIG = preset(
    "smoke",
    {
        "policy.hidden_size": 32,
        "policy.intermediate_size": 64,
        "policy.demonstration_turns": 200,
        "policy.warm_start_steps": 3,
        "evaluation.num_prompts": 4,
        "evaluation.variants": {},
    },
)
WITH_CRITIC = apply_overrides(
    CONFIG, {"update.advantage": "gae", "update.advantage_scale": "none", "update.should_whiten": True}
)

WITH_CREDIT = apply_overrides(
    CONFIG, {"update.advantage": "monte_carlo", "update.advantage_options": {"continuations": 2}}
)

SEARCHING = apply_overrides(
    CONFIG, {"rollout.search.type": "best_of", "rollout.num_greedy": 1, "update.search_rows": "weigh"}
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Stage -> its version and a summary of its outputs."""
    store = Store(str(tmp_path_factory.mktemp("golden")))
    first = "0" * 32
    put_folder(
        store,
        "checkpoint",
        str(CHECKPOINT),
        Facts(key=first, stage=Stage(name="golden", version=1), settings={}, inputs={}, seed=None),
    )
    summaries: dict[str, dict[str, Any]] = {}

    def note(work: Work, name: str = "") -> Keys:
        outputs = {kind: _summary(store, kind, key) for kind, key in work.carry_out(store).items()}
        summaries[name or work.stage.name] = {"version": work.stage.version, **outputs}
        return work.keys

    note(warm_start(CONFIG))
    data = note(rollout(0, CONFIG, first))
    note(rollout(0, SEARCHING, first), "rollout with search")
    data |= note(reward(CONFIG.reward, **data))
    data |= note(variance_filter(CONFIG.filter, **data))
    note(diagnose(0, **data))
    note(replace(probe(CONFIG, 0, first, first, data["turns"]), seed=7))
    plain, with_critic = (replace(update(config, 0, first, first, data), seed=7) for config in (CONFIG, WITH_CRITIC))
    note(plain)
    note(with_critic, "update with a critic")
    measured = note(replace(credit(WITH_CREDIT, first, data, Choice(), first=2), seed=7))
    with_credit = replace(update(WITH_CREDIT, 0, first, first, {**data, **measured}), seed=7)
    note(with_credit, "update on credit")
    settings = (CONFIG.environment, CONFIG.agent, CONFIG.rollout, CONFIG.evaluation)
    note(evaluate(0, "sokoban", *settings, first, lineage=store.url))
    return summaries


def _summary(store: Store, kind: str, key: str) -> dict[str, Any]:
    """Summarise an artifact: a digest of its exact columns, and sums of its real numbers."""
    if kind in DATASETS:
        table = store.read_table(kind, key)
        real = [field.name for field in table.schema if _is_real(field.type)]
        exact = content_digest(table.drop_columns(real))
        if kind == "metrics":
            return {"exact": exact, "reals": _metrics(table)}
        return {"exact": exact, "reals": {name: _sums(table[name]) for name in real}, "num_rows": table.num_rows}
    from safetensors.torch import load_file

    files = sorted(Path(store.local_folder(kind, key)).rglob("*.safetensors"))
    tensors = {f"{file.stem}/{name}": value for file in files for name, value in load_file(file).items()}
    return {"reals": {name: [float(t.double().sum()), float(t.double().norm())] for name, t in sorted(tensors.items())}}


def _metrics(table: pa.Table) -> dict[str, list[float]]:
    """Return all metrics but those that depend on the machine's speed."""
    values = metric_values(table)
    return {name: [value] for name, value in values.items() if "per_s" not in name and "seconds" not in name}


def _is_real(type_: pa.DataType) -> bool:
    return pa.types.is_floating(type_.value_type if pa.types.is_list(type_) else type_)


def _sums(column: pa.ChunkedArray) -> list[float]:
    """Return the sum, the sum of magnitudes, and the first ten values."""
    values = [value for row in column.to_pylist() for value in (row if isinstance(row, list) else [row])]
    values = [value for value in values if value is not None]
    return [sum(values), sum(map(abs, values)), *values[:10]]


def _differences(old: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if name not in old or name not in new:
                yield f"{place}.{name} is {'gone' if name in old else 'new'}"
            else:
                yield from _differences(old[name], new[name], f"{place}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        if new != pytest.approx(old, rel=TOLERANCE, abs=1e-5):
            yield f"{place}: was {old[:4]}, is {new[:4]}"
    elif old != new:
        yield f"{place}: was {old}, is {new}"


def test_stage_results_equal_golden(made: dict[str, dict[str, Any]], golden: Callable[[Path, Any], Any]) -> None:
    stored = golden(GOLDEN, made)
    assert stored.keys() == made.keys()
    for name, now in made.items():  # in order of execution: a difference makes later stages differ
        differences = list(_differences(stored[name], now, name))
        stage = name.partition(" ")[0]
        assert not differences, (
            f"stage {name} gives something else for the same input:\n  " + "\n  ".join(differences[:8]) + "\n"
            f"If the stage's own code did that, raise STAGE.version in tasks/{stage}.py, now {now['version']}, so that "
            "nothing stored by the code before is taken for this one's. If it was code that settings name, the key "
            "knows. Then: pytest tests/golden --regenerate-golden, and review the change of stages.json"
        )


def test_a_difference_is_found() -> None:
    old = {"turns": {"exact": "a", "reals": {"x": [1.0, 2.0]}}}
    assert not list(_differences(old, {"turns": {"exact": "a", "reals": {"x": [1.0005, 2.0]}}}, "rollout"))
    assert list(_differences(old, {"turns": {"exact": "b", "reals": {"x": [1.0, 2.0]}}}, "rollout"))
    assert list(_differences(old, {"turns": {"exact": "a", "reals": {"x": [1.01, 2.0]}}}, "rollout"))
    assert list(_differences(old, {"turns": {"exact": "a", "reals": {}}}, "rollout"))
