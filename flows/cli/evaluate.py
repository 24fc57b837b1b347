"""`ragen evaluate`: the stage `evaluate` on a run's panels, in this process, and its metrics as a table."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.series import stored_metrics
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys
from starpo.tasks.evaluate import evaluate as evaluation_of

_CHANGEABLE = ("rollout.engine", "rollout.vllm", "rollout.openai", "evaluation.")


def evaluate(
    run: RunArgument,
    iteration: Annotated[
        int | None, typer.Option(help="The checkpoint after this many iterations. Default: the last one.")
    ] = None,
    set_: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a checkpoint, or the model of a server (--set rollout.engine=openai, see docs/vllm.md)."""
    opened, overrides = open_store(store), parse_overrides(set_)
    strangers = [path for path in overrides if not path.startswith(_CHANGEABLE)]
    if strangers:
        raise ConfigError(
            f"override {strangers[0]}: `ragen evaluate` uses the settings of the checkpoint's run, except for the "
            "engine (rollout.engine, rollout.vllm.*, rollout.openai.*) and evaluation.*, which can be changed"
        )
    recorded = recorded_config(run, opened.runs.get(run).config, "Evaluate runs of this release")
    config = apply_overrides(recorded, overrides, f"run {run}")
    checkpoints = checkpoint_keys(opened.runs.iterations(run))
    if not checkpoints:
        raise ConfigError(f"run {run} has no checkpoint yet")
    number = max(checkpoints) if iteration is None else iteration
    if number not in checkpoints:
        raise ConfigError(f"run {run} has no checkpoint {number}; it has {min(checkpoints)} to {max(checkpoints)}")
    values: dict[str, float] = {}
    console = Console(stderr=True)
    for cell, environment in config.panels.items():
        with console.status(f"checkpoint {number} on {cell}"):
            settings = environment, config.agent, config.rollout, config.evaluation
            keys = evaluation_of(number, cell, *settings, checkpoints[number], lineage=opened.url).carry_out(opened)
        values |= stored_metrics(opened, keys["metrics"])
    if as_json:
        print_json({"run": run, "checkpoint": number, "metrics": values})
    else:
        rows = [{"metric": name, "value": f"{value:g}"} for name, value in values.items()]
        title = f"{run}, checkpoint {number}, engine {config.rollout.engine}"
        print_table(Console(), rows, title=title, numbers=("value",))
        for cell in config.panels:
            for line in _remarks(cell, values):
                say(Console(), line)


def _remarks(cell: str, values: Mapping[str, float]) -> Iterator[str]:
    """Yield remarks about panel prompts that training started from, or may have started from."""
    of = {name: values.get(f"evaluation/{cell}/{name}") for name in ("num_seen_prompts", "success", "seen/success")}
    seen = of["num_seen_prompts"]
    if seen:
        on = [f"{value:.3f}" if value is not None else "not measured" for value in (of["success"], of["seen/success"])]
        yield (
            f"{cell}: this checkpoint's training started from {seen:.0f} of the panel's prompts; success is {on[0]} on "
            f"the others, {on[1]} on those"
        )
    unknown = values.get(f"evaluation/{cell}/num_unknown_origins")
    if unknown:
        yield (
            f"{cell}: {unknown:.0f} stages of this checkpoint's training are not in this store, so prompts that it "
            "started from may be counted"
        )
