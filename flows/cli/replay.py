"""Other settings over stored rollouts."""

from typing import Annotated

import typer

from starpo.flows.cli.common import AGAIN, JsonOption, SetOption, StoreOption, app, open_store, parse_overrides


@app.command(rich_help_panel=AGAIN)
def replay(
    run: Annotated[str, typer.Argument(help="The run whose rollouts are replayed; `ragen runs` lists them.")],
    start: Annotated[int, typer.Option("--from", help="Checkpoint to start from: updates done before it.")] = 0,
    stop: Annotated[int | None, typer.Option("--to", help="Checkpoint to end at. Default: the run's last one.")] = None,
    set_: SetOption = None,
    update: Annotated[
        bool, typer.Option("--update/--no-update", help="Replay the updates, or reward and filter only.")
    ] = True,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Evaluate both ends on the panel, the run's and the replay's.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the replay. Default: run, range and what was changed.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay reward, filter and update over a run's stored rollouts with other settings, and compare.

    No environment and no engine take part, except for --evaluate. What was not changed is found in the store.
    """
    from starpo.flows.console.replay import replay_run

    replay_run(
        open_store(store),
        run,
        start=start,
        stop=stop,
        overrides=parse_overrides(set_),
        should_update=update,
        should_evaluate=evaluate,
        store_url=store,
        name=name,
        as_json=as_json,
    )
