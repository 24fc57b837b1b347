"""Is a run what its record says?"""

from typing import Annotated

import typer

from starpo.flows.cli.common import AGAIN, JsonOption, RunArgument, StoreOption, app, open_store


@app.command(rich_help_panel=AGAIN)
def verify(
    run: RunArgument,
    first: Annotated[int | None, typer.Option("--from", help="First iteration. Default: the run's first.")] = None,
    last: Annotated[int | None, typer.Option("--to", help="Last iteration. Default: the run's last.")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this stage; may be repeated.")] = None,
    sample: Annotated[str, typer.Option(help="Share of the iterations, evenly spread, such as 10%.")] = "100%",
    warm_start: Annotated[bool, typer.Option("--warm-start", help="Recompute a long warm start too.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute a run's stages and compare; re-execute its actions, decode its tokens.

    The store is only read. Exit code 0: all is the same; 1: something is different or damaged; 3: nothing is, and not
    everything is shown, for reasons that are printed.
    """
    from starpo.flows.console.verify import verify_and_print

    exit_code = verify_and_print(
        open_store(store),
        run,
        first=first,
        last=last,
        stages=stage or [],
        sample=sample,
        with_warm_start=warm_start,
        as_json=as_json,
    )
    raise typer.Exit(exit_code)
