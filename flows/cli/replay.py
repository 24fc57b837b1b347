"""`starpo replay`: check, run the deployment `replay/updates`, follow it, print the comparison."""

from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.deployment import follow_deployment
from starpo.flows.console.replay_summary import print_comparison
from starpo.flows.console.terminal import Console
from starpo.ragen.runs.replay.plan import plan_replay
from starpo.tasks.loop.run_code import replay_code


def replay(
    run: Annotated[str, typer.Argument(help="The run whose rollouts are replayed; `starpo runs` lists them.")],
    start: Annotated[
        int, typer.Option("--from", help="Checkpoint to start from: the number of updates before it.")
    ] = 0,
    stop: Annotated[int | None, typer.Option("--to", help="Checkpoint to end at. Default: the run's last one.")] = None,
    set_: SetOption = None,
    update: Annotated[
        bool, typer.Option("--update/--no-update", help="Replay the updates, or reward and filter only.")
    ] = True,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Evaluate the end checkpoints of run and replay on the panel.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the replay. Default: run, range and what was changed.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay reward, filter and update over a run's stored rollouts with other settings, and compare.

    Neither environment nor engine is used, except for --evaluate. What was not changed is found in the store.
    """
    opened, overrides = open_store(store), parse_overrides(set_)
    plan = plan_replay(opened, run, start, stop, overrides, update)  # an impossible replay fails here
    code = replay_code(plan.config)
    if name is not None:  # a user-given name must not belong to another run
        opened.runs.create(
            name, flow="replay", preset=plan.base.preset, config=plan.config.model_dump(mode="json"),
            parameters=plan.parameters, code=code,
        )  # fmt: skip
    given = {
        "base": run,
        "start": start,
        "stop": plan.stop,
        "overrides": overrides or None,
        "should_update": None if update else False,
        "should_evaluate": evaluate or None,
        "store": store,
        "run": name,
    }
    parameters = {key: value for key, value in given.items() if value is not None}
    made = name or plan.name(code)
    follow_deployment("replay/updates", parameters, opened, made, Console(stderr=as_json))
    print_comparison(opened, made, as_json)
