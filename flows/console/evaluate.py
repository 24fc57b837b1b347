"""What `ragen evaluate` does: the stage `evaluate` on a run's panels, in this process, and its metrics as a table."""

from collections.abc import Mapping
from typing import Any

from flows.console.table import print_table
from flows.console.terminal import Console, print_json
from ragen.checkpoints.survey import checkpoint_keys
from ragen.config.load import apply_overrides, recorded_config
from ragen.errors import ConfigError
from ragen.store import Store
from tasks.evaluate import evaluate

_CHANGEABLE = ("rollout.engine", "rollout.vllm", "rollout.openai", "evaluation.")


def evaluate_run(
    store: Store, run: str, iteration: int | None, overrides: Mapping[str, Any], as_json: bool
) -> dict[str, float]:
    """Play the panels of a run's environment and of its variants with a checkpoint; what is stored is not played again.

    Args:
        store: Where the run is, and where the results go.
        run: Its name.
        iteration: Number of the checkpoint. None: the last one.
        overrides: Settings of the engine and the evaluation to change, by dotted path.
        as_json: Print JSON; progress goes to the error output.

    Returns:
        The metrics printed.

    Raises:
        ConfigError: If a setting is wrong or is none of the engine's or the evaluation's, or there is no such
            checkpoint.
        StoreError: If there is no such run.
        EngineError: If the engine fails, or the server that was asked.
    """
    strangers = [path for path in overrides if not path.startswith(_CHANGEABLE)]
    if strangers:
        raise ConfigError(
            f"override {strangers[0]}: `ragen evaluate` asks a checkpoint what its run asked it; it can change the "
            "engine (rollout.engine, rollout.vllm.*, rollout.openai.*) and evaluation.*"
        )
    recorded = recorded_config(run, store.runs.get(run).config, "Evaluate runs of this release")
    config = apply_overrides(recorded, overrides, f"run {run}")
    checkpoints = checkpoint_keys(store.runs.iterations(run))
    if not checkpoints:
        raise ConfigError(f"run {run} has no checkpoint yet")
    number = max(checkpoints) if iteration is None else iteration
    if number not in checkpoints:
        raise ConfigError(f"run {run} has no checkpoint {number}; it has {min(checkpoints)} to {max(checkpoints)}")
    values: dict[str, float] = {}
    console = Console(stderr=True)
    for cell, environment in ({config.environment.type: config.environment} | config.evaluation.variants).items():
        with console.status(f"checkpoint {number} on {cell}"):
            keys = evaluate.fn(
                store.url,
                number,
                cell,
                environment,
                config.agent,
                config.rollout,
                config.evaluation,
                checkpoints[number],
            )
        metrics = store.read_table("metrics", keys["metrics"], columns=["name", "value"])
        values |= dict(zip(metrics["name"].to_pylist(), metrics["value"].to_pylist(), strict=True))
    if as_json:
        print_json({"run": run, "checkpoint": number, "metrics": values})
    else:
        rows = [{"metric": name, "value": f"{value:g}"} for name, value in values.items()]
        title = f"{run}, checkpoint {number}, engine {config.rollout.engine}"
        print_table(Console(), rows, title=title, numbers=("value",))
    return values
