"""`starpo fork`: continue training from a stored checkpoint with other settings."""

import shlex
from typing import Annotated

import typer

from starpo.flows.cli.options import (
    JsonOption,
    LocalOption,
    MethodOption,
    RunArgument,
    SetOption,
    SettingsOption,
    StoreOption,
    open_store,
    parse_overrides,
    stoppable,
)
from starpo.flows.console.conclusion import conclude
from starpo.flows.console.start import train_fork
from starpo.flows.console.terminal import Console, print_json
from starpo.tasks.loop.fork import plan_fork


def fork(
    run: RunArgument,
    start: Annotated[int, typer.Option("--from", help="Checkpoint to continue from: the number of updates before it.")],
    set_: SetOption = None,
    method: MethodOption = None,
    name: Annotated[
        str | None, typer.Option("--as", help="Name of the fork. Default: run, checkpoint and what was changed.")
    ] = None,
    store: StoreOption = None,
    local: LocalOption = False,
    settings: SettingsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue training from a run's checkpoint with other settings of rollout, reward, filter or update.

    Everything before that checkpoint is shared with the run. `starpo runs --tree` draws forks.
    """
    planned = plan_fork(open_store(store), run, start, parse_overrides(set_, method))
    if settings:
        print_json(planned.config)
        return
    again = ["starpo", "fork", run, "--from", str(start)]
    again += ["--method", method] if method is not None else []
    again += [word for assignment in set_ or [] for word in ("--set", assignment)]
    again += ["--store", store] if store is not None else []
    written = {"config": f'config="$({shlex.join(again)} --settings)"'}
    console = Console(stderr=as_json)
    with stoppable(local):
        opened, fork_name = train_fork(planned, console, store=store, run=name, is_local=local, written=written)
    conclude(opened, fork_name, as_json)
