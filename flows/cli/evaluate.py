"""One checkpoint on its panels, with another engine or other settings of the evaluation."""

from typing import Annotated

import typer

from starpo.flows.cli.common import (
    STUDY,
    JsonOption,
    RunArgument,
    SetOption,
    StoreOption,
    app,
    open_store,
    parse_overrides,
)


@app.command(rich_help_panel=STUDY)
def evaluate(
    run: RunArgument,
    iteration: Annotated[int | None, typer.Option(help="Number of the checkpoint. Default: the last one.")] = None,
    set_: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a checkpoint here, or an OpenAI-compatible server (--set rollout.engine=openai, see docs/vllm.md)."""
    from starpo.flows.console.evaluate import evaluate_run

    evaluate_run(open_store(store), run, iteration, parse_overrides(set_), as_json)
