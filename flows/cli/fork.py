"""`ragen fork`: continue training from a stored checkpoint with other settings."""

import shlex
from typing import Annotated

import typer

from starpo.flows.cli.options import MethodOption, RunArgument, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.console.training import follow_training
from starpo.flows.fork import plan_fork
from starpo.flows.reuse import reused
from starpo.flows.run_code import code_of
from starpo.ragen.readiness import check_ready


def fork(
    run: RunArgument,
    start: Annotated[int, typer.Option("--from", help="Checkpoint to continue from: the number of updates before it.")],
    set_: SetOption = None,
    method: MethodOption = None,
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the fork. Default: run, checkpoint and what was changed.")
    ] = None,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only print the fork's settings.")] = False,
) -> None:
    """Continue training from a run's checkpoint with other settings of rollout, reward, filter or update.

    Everything before that checkpoint is shared with the run. `ragen runs --tree` draws forks.
    """
    opened, overrides = open_store(store), parse_overrides(set_, method)
    planned = plan_fork(opened, run, start, overrides)
    settings = planned.config.model_dump(mode="json")
    if as_json:
        print_json(settings)
        return
    check_ready(planned.config, f"a fork of '{run}'")
    fork_name, preset = name or planned.name, planned.base.preset or "custom"
    if name is not None:  # a user-given name must not belong to another run
        opened.runs.create(name, flow="starpo", preset=preset, config=settings, code=code_of(planned.config))
    console = Console()
    say(console, str(reused(opened, fork_name, planned.config)))
    parameters = {"config": settings, "preset": preset, "run": fork_name}
    if store is not None:
        parameters["store"] = store
    again = ["ragen", "fork", run, "--from", str(start)]
    again += ["--method", method] if method is not None else []
    again += [word for assignment in set_ or [] for word in ("--set", assignment)]
    again += ["--store", store] if store is not None else []
    written = {"config": f'config="$({shlex.join(again)} --json)"'}
    follow_training("starpo/custom", parameters, opened, fork_name, console, written)
