"""Learning: success on the fixed panel before and after training, with three seeds, against imitation alone.

pytest -m benchmark tests/benchmarks/test_learning.py -s [-k sokoban]
"""

from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.evidence.run_facts import evaluation_curve
from starpo.ragen.store import Store
from starpo.tasks.evaluate import evaluate

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.slow,
    pytest.mark.timeout(7200),
    pytest.mark.usefixtures("prefect_server"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Single store for all runs, so that the seeds share the warm start."""
    return tmp_path_factory.mktemp("store")


def curves(name: str, store: Path, seeds: tuple[int, ...] = (0, 1, 2)) -> list[list[dict[str, float]]]:
    """Train a preset with several seeds; print and return the panel's success at every evaluated checkpoint."""
    seed_curves = []
    for seed in seeds:
        run = starpo(preset=name, seed=seed, store=str(store))
        curve = evaluation_curve(Store(str(store)), Store(str(store)).runs.get(run))
        print(f"{name} seed {seed}: " + " ".join(f"{p['iteration']:.0f}:{p['success']:.3f}" for p in curve))
        first, last = curve[0], curve[-1]
        print(
            f"{name} seed {seed}: {first['success']:.3f} [{first['low']:.3f}, {first['high']:.3f}] -> "
            f"{last['success']:.3f} [{last['low']:.3f}, {last['high']:.3f}]"
        )
        seed_curves.append(curve)
    return seed_curves


def imitation(name: str, store: Path) -> float:
    """Return the best success of the warm start over sampling temperatures from the panel's own down to 0."""
    config = preset(name)
    opened = Store(str(store))
    run = next(r for r in opened.runs.list() if r.preset == name)
    checkpoint = opened.runs.iterations(run.name)[0]["warm_start"]["checkpoint"]
    best = 0.0
    for temperature in (0.5, 0.3, 0.2, 0.1, 0.05, 0.0):
        sharper = EvaluationConfig(**{**config.evaluation.model_dump(), "temperature": temperature, "variants": {}})
        settings = config.environment, config.agent, config.rollout, sharper
        keys = evaluate(0, "imitation", *settings, checkpoint, lineage=opened.url).carry_out(opened)
        success = opened.manifest("episodes", keys["episodes"]).headline["evaluation/imitation/success"]
        print(f"{name}: warm start at temperature {temperature}: {success:.3f}")
        best = max(best, success)
    return best


@pytest.mark.parametrize("name", ["sokoban", "frozen-lake"])
def test_training_improves_on_imitation(name: str, store: Path) -> None:
    gain = {"sokoban": 0.60, "frozen-lake": 0.30}[name]
    seed_curves = curves(name, store)
    best_imitation = imitation(name, store)
    for curve in seed_curves:
        first, last = curve[0], curve[-1]
        assert last["success"] - first["success"] >= gain
        assert last["low"] > first["high"]
        assert last["success"] > best_imitation


@pytest.mark.parametrize(
    ("name", "gain"),
    [("countdown", 0.25), ("metamath-qa", 0.25), ("search-qa", 0.5), ("reasoning-gym", 0.4), ("rubik", 0.5)],
)
def test_further_environments_are_learned(name: str, gain: float, store: Path) -> None:
    for curve in curves(name, store, seeds=(0, 1)):
        assert curve[-1]["success"] - curve[0]["success"] >= gain


def test_long_training_keeps_what_it_learned(store: Path) -> None:
    run = starpo(preset="sokoban", iterations=200, store=str(store))
    curve = evaluation_curve(Store(str(store)), Store(str(store)).runs.get(run))
    print("sokoban, 200 iterations: " + " ".join(f"{p['iteration']:.0f}:{p['success']:.3f}" for p in curve))
    assert curve[-1]["success"] >= max(point["success"] for point in curve) - 0.1
