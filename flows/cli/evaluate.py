"""`starpo evaluate`: the stage `evaluate` on a run's panels, in this process, and its metrics as a table."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from starpo.flows.api.evaluation import evaluate_checkpoint
from starpo.flows.cli.options import JsonOption, RunArgument, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, plain, print_json, say


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
    console = Console(stderr=True)
    with console.status("reading the run") as status:
        evaluation = evaluate_checkpoint(
            open_store(store), run, iteration, parse_overrides(set_), lambda text: status.update(plain(text))
        )
    values, config = evaluation.metrics, evaluation.config
    if as_json:
        print_json({"run": run, "checkpoint": evaluation.number, "metrics": values})
    else:
        rows = [{"metric": name, "value": f"{value:g}"} for name, value in values.items()]
        title = f"{run}, checkpoint {evaluation.number}, engine {config.rollout.engine}"
        print_table(Console(), rows, title=title, numbers=("value",))
        for cell in config.panels:
            for line in _remarks(cell, values):
                say(Console(), line)


def _remarks(cell: str, values: Mapping[str, float]) -> Iterator[str]:
    """Yield remarks about panel prompts that training started from, or may have started from."""
    of = {name: values.get(f"evaluation/{cell}/{name}") for name in ("num_seen_prompts", "success", "seen/success")}
    num_seen = of["num_seen_prompts"]
    if num_seen:
        on = [f"{value:.3f}" if value is not None else "not measured" for value in (of["success"], of["seen/success"])]
        yield (
            f"{cell}: this checkpoint's training started from {num_seen:.0f} of the panel's prompts; success is "
            f"{on[0]} on the others, {on[1]} on those"
        )
    unknown = values.get(f"evaluation/{cell}/num_unknown_origins")
    if unknown:
        yield (
            f"{cell}: {unknown:.0f} stages of this checkpoint's training are not in this store, so prompts that it "
            "started from may be counted"
        )
