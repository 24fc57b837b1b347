"""Running a deployment of the local server, and following its run to the end."""

import json
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from starpo.flows import server, view_server
from starpo.flows.background import ServerError
from starpo.flows.console.follow import follow_run
from starpo.flows.console.second_witness import SecondWitness
from starpo.flows.console.terminal import Console, say
from starpo.flows.console.watching import advice_on, watching
from starpo.flows.flow_run import FlowRun, Found, asking, unfinished
from starpo.flows.outcome import Outcome
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.store import Store

_RUNS = ("starpo", "replay")
"""Flows whose flow runs are named after the run that they make."""


def follow_deployment(
    deployment: str,
    parameters: dict[str, Any],
    store: Store,
    run: str,
    console: Console,
    written: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a deployment on the local server, which is started if necessary, and follow its run to the end.

    Args:
        deployment: Flow and deployment, such as `starpo/sokoban`.
        parameters: Parameters of the flow.
        store: Where the run is recorded.
        run: The run's name.
        console: Console for the progress.
        written: Parameter -> shell text to show for it, where that is shorter than its value.

    Returns:
        The name of the run that it ended as; after a rollback, that of the fork.

    Raises:
        ServerError: If there is no server and none can be started, if it stops meanwhile, or if another serving process
            recorded the run in its own store.
        RunFailedError: If the run did not complete.
    """
    witness = SecondWitness(store.runs, store.runs.state(run) if run in store.runs.names() else None)
    ended = start_deployment(deployment, parameters, run, console, written)
    try:
        with watching(console, f"run {run}", *advice_on(run, parameters.get("store"))):
            run = follow_run(store, run, console, ended, witness)
    except server.ServerGoneError as error:
        raise server.ServerGoneError(f"{error}. {_without_server(store, run)}") from error
    if run not in store.runs.names():
        raise ServerError(
            f"the flow run completed, but its run '{run}' is not in {store.url}: another process serves the same "
            f"deployments at {server.api_url()}, such as that of another clone, and wrote to its own store. Stop it "
            "there (`starpo down`), or give this one its own server: another port in PREFECT_API_URL"
        )
    return run


def _without_server(store: Store, run: str) -> str:
    if store.runs.is_running(run):
        return f"Run {run} is still running without it: `starpo follow {run}` shows its progress"
    return (
        f"Run {run} has ended too, as `starpo down` stops all active runs. What it stored is kept: the same command "
        "starts the server again and continues the run"
    )


def start_deployment(
    deployment: str,
    parameters: dict[str, Any],
    name: str,
    console: Console,
    written: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[], Outcome | None]:
    """Run a deployment on the local server, which is started if necessary.

    The deployment is first updated with the current settings. The store is the one given or configured here, even if
    the serving process was started with another store or in another folder.

    Args:
        deployment: Flow and deployment, such as `starpo/sokoban`.
        parameters: Parameters of the flow.
        name: Name of the flow run.
        console: Console for what was started and the URL of its page.
        written: Parameter -> shell text to show for it, where that is shorter than its value.

    Returns:
        Function that returns how the flow run ended, or None while it is unfinished.

    Raises:
        ServerError: If there is no server and none can be started, or it refuses or fails.
    """
    with console.status(server.STARTING):
        state_dir, store = Runtime.current().state_dir, Store(parameters.get("store", Runtime.current().store)).address
        server.start(state_dir, lambda line: say(console, line))
    register(deployment)
    served = server.served_environment(state_dir)
    if "store" in parameters or (served is not None and served.get("STARPO_STORE") != store):
        parameters = {**parameters, "store": store}
    begun = FlowRun.start(deployment, parameters, name)
    say(console, f"Prefect: {begun.page}")
    run = name if deployment.partition("/")[0] in _RUNS else ""
    say(console, f"Live:    {view_server.url(state_dir, store, run) or f'starpo view {run} --store {store}'}")
    command = f"$ prefect deployment run {deployment}{_flags(parameters, written)}"
    say(console, command)
    return begun.ended


def unfinished_in(store: Store, name: str) -> list[Found]:
    """List unfinished flow runs of this name that write to this store, newest first.

    Raises:
        ServerError: If the server does not answer, or fails.
    """
    served = server.served_environment(Runtime.current().state_dir) or {}

    def writes_to(parameters: Mapping[str, Any]) -> bool:
        address = parameters.get("store") or served.get("STARPO_STORE")  # without `store`: that of the serving process
        return address is None or Store(address).address == store.address

    return [run for run in unfinished(name) if writes_to(run.parameters)]


def written_settings(file: str) -> str:
    """Return the shell text that stands for a file's settings, as parameter `config` of a deployment."""
    return f'config="$(starpo validate {shlex.quote(file)} --settings)"'


def register(deployment: str | None = None) -> None:
    """Update a deployment on the server, as settings or their schema may have changed since it was served.

    Args:
        deployment: Flow and deployment. None for all.

    Raises:
        ServerError: If the serving process was started before the deployment existed, and has active runs.
    """
    from starpo.flows.serve import register as register_deployment

    with asking(f"to register {deployment or 'the deployments'}"):
        is_served = register_deployment(deployment)
    if not is_served:
        server.serve_again(Runtime.current().state_dir, lambda line: say(Console(stderr=True), line))


def _flags(parameters: dict[str, Any], written: Mapping[str, str]) -> str:
    flags = {key: shlex.quote(f"{key}={json.dumps(value)}") for key, value in parameters.items()} | {
        key: text for key, text in written.items() if key in parameters
    }
    return "".join(f" -p {flag}" for flag in flags.values())
