"""Evaluation of one of a run's checkpoints, in this process: the stage `evaluate` on each of the run's panels.

run, checkpoint, changed settings -> stage per panel -> Evaluation
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import ENGINES
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys
from starpo.tasks.evaluate import evaluate

_CHANGEABLE = ("rollout.engine", *(f"rollout.{engine}" for engine in ENGINES), "evaluation.")


@dataclass(frozen=True)
class Evaluation:
    """Result of evaluating a checkpoint.

    Attributes:
        number: The checkpoint: iterations before it.
        config: The settings that it was evaluated with.
        metrics: Name -> value, of all panels.
    """

    number: int
    config: StarPOConfig
    metrics: dict[str, float]


def evaluate_checkpoint(
    store: Store,
    run: str,
    iteration: int | None,
    overrides: Mapping[str, Any],
    tell: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Evaluate a checkpoint of a run, or the model of a server (rollout.engine = 'openai').

    Args:
        store: Where the run is stored, and its evaluation will be; what is already stored is not played again.
        run: The run's name.
        iteration: The checkpoint after this many iterations. None for the last one.
        overrides: Dotted path -> value, of the engine or of `evaluation`.
        tell: Called with what is evaluated next, in words.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no such checkpoint, or another setting is to change.
    """
    strangers = [path for path in overrides if not path.startswith(_CHANGEABLE)]
    if strangers:
        raise ConfigError(
            f"override {strangers[0]}: `starpo evaluate` uses the settings of the checkpoint's run, except for the "
            "engine (rollout.engine, and the table of its name) and evaluation.*, which can be changed"
        )
    recorded = recorded_config(run, store.runs.get(run).config, "Evaluate runs of this release")
    config = apply_overrides(recorded, overrides, f"run {run}")
    number, checkpoint = find_checkpoint(store, run, iteration)
    metrics: dict[str, float] = {}
    with ModelPlacement() as placement:
        for cell, environment in config.panels.items():
            tell(f"checkpoint {number} on {cell}")
            settings = environment, config.agent, config.rollout, config.evaluation
            keys = evaluate(number, cell, *settings, checkpoint, lineage=store.url).carry_out(store, placement)
            metrics |= stored_metrics(store, keys["metrics"])
    return Evaluation(number, config, metrics)


def find_checkpoint(store: Store, run: str, iteration: int | None) -> tuple[int, str]:
    """Return number and key of one of a run's checkpoints: the one after this many iterations, or the last one.

    Raises:
        ConfigError: If the run has no such checkpoint.
    """
    checkpoints = checkpoint_keys(store.runs.iterations(run))
    if not checkpoints:
        raise ConfigError(f"run {run} has no checkpoint yet")
    number = max(checkpoints) if iteration is None else iteration
    if number not in checkpoints:
        raise ConfigError(f"run {run} has no checkpoint {number}; it has {min(checkpoints)} to {max(checkpoints)}")
    return number, checkpoints[number]
