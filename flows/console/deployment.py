"""A deployment of the local server: run it, and follow what it does to its end."""

import json
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from starpo.flows import server
from starpo.flows.console.flow_run import FlowRun, asking
from starpo.flows.console.follow import Outcome, follow_run
from starpo.flows.console.terminal import Console, say
from starpo.flows.console.watching import advice_on, watching
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.store import Store


def follow_deployment(
    deployment: str,
    parameters: dict[str, Any],
    store: Store,
    run: str,
    console: Console,
    written: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a deployment on the local server, which is started if need be, and follow the run that it makes to its end.

    Args:
        deployment: Flow and deployment, such as `starpo/sokoban`.
        parameters: Of the flow.
        store: Where the run is written.
        run: Its name.
        console: Where to show it.
        written: Parameter -> how a shell would be told, where that is shorter than its value.

    Returns:
        The name of the run that it ended as: of one that was rolled back, that of its fork.

    Raises:
        ServerError: If there is no server, and none can be started, if it ends meanwhile, or if another process took
            the run to its own store.
        RunFailedError: If the run did not complete.
    """
    ended = start_deployment(deployment, parameters, run, console, written)
    try:
        with watching(console, f"run {run}", *advice_on(run, parameters.get("store"))):
            run = follow_run(store, run, console, ended)
    except server.ServerGoneError as error:
        raise server.ServerGoneError(f"{error}. {_without_server(store, run)}") from error
    if run not in store.runs.names():
        raise server.ServerError(
            f"the flow run completed, but its run '{run}' is not in {store.url}: another process serves the same "
            f"deployments at {server.api_url()}, such as that of another clone, and wrote to its own store. Stop it "
            "there (`ragen down`), or give this one its own server: another port in PREFECT_API_URL"
        )
    return run


def _without_server(store: Store, run: str) -> str:
    if store.runs.is_running(run):
        return f"Run {run} is still running without it: `ragen follow {run}` shows its progress"
    return (
        f"Run {run} has ended too, as `ragen down` stops all active runs. What it stored is kept: the same command "
        "starts the server again and continues the run"
    )


def start_deployment(
    deployment: str,
    parameters: dict[str, Any],
    name: str,
    console: Console,
    written: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[], Outcome | None]:
    """Run a deployment on the local server, which is started if need be.

    The deployment is registered anew with the settings as they are here. The store is the one that is named or
    configured here, though the serving process may have been started with another, or in another folder.

    Args:
        deployment: Flow and deployment, such as `starpo/sokoban`.
        parameters: Of the flow.
        name: What its flow run is called.
        console: Where it is said what was started, and where its page is.
        written: Parameter -> how a shell would be told, where that is shorter than its value.

    Returns:
        What says how its flow run ended; None while it goes on.

    Raises:
        ServerError: If there is no server, and none can be started, or it refuses or fails.
    """
    with console.status("starting the local Prefect server (about 20 s the first time)"):
        server.start(Runtime.current().state_dir, lambda text: say(console, text))
    register(deployment)
    store = Store(parameters.get("store", Runtime.current().store)).address
    served = server.served_environment(Runtime.current().state_dir)
    if "store" in parameters or (served is not None and served.get("RAGEN_STORE") != store):
        parameters = {**parameters, "store": store}
    begun = FlowRun.start(deployment, parameters, name)
    say(console, f"Prefect: {begun.page}")
    command = f"$ prefect deployment run {deployment}{_flags(parameters, written)}"
    say(console, command)
    return begun.ended


def register(deployment: str | None = None) -> None:
    """Have a deployment on the server as it is here: settings, or their schema, may be others since it was served.

    Args:
        deployment: Flow and deployment. None: all.

    Raises:
        ServerError: If the serving process was started before there was such a deployment, and is at work.
    """
    from starpo.flows.serve import register as register_deployment

    with asking(f"to register {deployment or 'the deployments'}"):
        is_served = register_deployment(deployment)
    if not is_served:
        server.serve_again(Runtime.current().state_dir)


def _flags(parameters: dict[str, Any], written: Mapping[str, str]) -> str:
    flags = {key: shlex.quote(f"{key}={json.dumps(value)}") for key, value in parameters.items()} | {
        key: text for key, text in written.items() if key in parameters
    }
    return "".join(f" -p {flag}" for flag in flags.values())
