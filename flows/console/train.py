"""What `ragen train`, `report` and `compare` do: run a deployment, follow it, write pages and pictures."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from starpo.flows import server
from starpo.flows.console.flow_run import FlowRun, asking
from starpo.flows.console.follow import Outcome, follow_run
from starpo.flows.console.listing import evaluation_curve, success_line
from starpo.flows.console.terminal import Console, plain, say
from starpo.flows.console.watching import advice_on, watching
from starpo.flows.memory_check import check_memory
from starpo.flows.presets import names, preset
from starpo.flows.reuse import reused
from starpo.flows.run_code import code_of, default_run_name
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.readiness import check_ready
from starpo.ragen.store import Store
from starpo.ragen.store.names import checked_name


def train_and_follow(
    name: str,
    *,
    overrides: dict[str, Any],
    seed: int | None,
    iterations: int | None,
    store: str | None,
    run: str | None,
    should_reuse: bool = True,
) -> None:
    """Train by a preset, or by a TOML file of settings, on the local server, and follow the run to its end.

    A preset has a deployment of its name; the settings of a file are a parameter of `starpo/custom`.
    """
    if not should_reuse:
        overrides = {**overrides, "fresh": datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")}
    short = {key: value for key, value in {"seed": seed, "iterations": iterations}.items() if value is not None}
    config = preset(name, {**overrides, **short})  # wrong settings fail here, before anything is started
    if config.policy.type == "pretrained":  # the embedded policy's tokenizer would first have to be made; the flow asks
        check_memory(config)
    check_ready(config, name)
    runtime, console = Runtime.current(), Console()
    is_file = name not in names()
    settings = Path(name).stem if is_file else name  # what they are called
    opened, run_name = Store(store or runtime.store), run or default_run_name(settings, config)
    checked_name(run_name, "run")
    if run is not None:  # a name of the user's own must not belong to a run with other settings or code
        opened.runs.create(
            run, flow="starpo", preset=settings, config=config.model_dump(mode="json"), code=code_of(config)
        )
    console.print(str(reused(opened, run_name, config)), highlight=False, markup=False, soft_wrap=True)
    given = {"config": preset(name).model_dump(mode="json"), "preset": settings} if is_file else {}
    optional = {"overrides": overrides or None, "store": store, "run": run}
    parameters = {**given, **short, **{key: value for key, value in optional.items() if value is not None}}
    written = {"config": f'config="$(ragen validate {shlex.quote(name)} --json)"'}
    follow_deployment(f"starpo/{'custom' if is_file else name}", parameters, opened, run_name, console, written)
    report = write_report(opened, run_name, None)
    for label, value in {
        "run": run_name,
        "success": success_line(opened, run_name),
        "artifacts": opened.url if "://" in opened.url else str(Path(opened.url).resolve()),
        "report": str(report),
        "more": f"ragen show {run_name}",
    }.items():
        console.print(f"{label:<10} {value}", highlight=False, markup=False, soft_wrap=True)


def follow_deployment(
    deployment: str,
    parameters: dict[str, Any],
    store: Store,
    run: str,
    console: Console,
    written: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a deployment on the local server, which is started if need be, and follow the run that it makes to its end.

    Args:
        deployment: Flow and deployment, such as `starpo/sokoban`.
        parameters: Of the flow.
        store: Where the run is written.
        run: Its name.
        console: Where to show it.
        written: Parameter -> how a shell would be told, where that is shorter than its value.

    Raises:
        ServerError: If there is no server, and none can be started, if it ends meanwhile, or if another process took
            the run to its own store.
        RunFailedError: If the run did not complete.
    """
    ended = start_deployment(deployment, parameters, run, console, written)
    try:
        with watching(console, f"run {run}", *advice_on(run, parameters.get("store"))):
            follow_run(store, run, console, ended)
    except server.ServerGoneError as error:
        raise server.ServerGoneError(f"{error}. {_without_server(store, run)}") from error
    if run not in store.runs.names():
        raise server.ServerError(
            f"the flow run completed, but its run '{run}' is not in {store.url}: another process serves the same "
            f"deployments at {server.api_url()}, such as that of another clone, and wrote to its own store. Stop it "
            "there (`ragen down`), or give this one a server of its own by another port in PREFECT_API_URL"
        )


def _without_server(store: Store, run: str) -> str:
    if store.runs.is_running(run):
        return f"Run {run} is at work and goes on without it: `ragen follow {run}` shows how far it is"
    return (
        f"Run {run} has ended with it, as `ragen down` ends the runs that are at work. What it stored is kept: the "
        "same command again starts the server, and goes on where it was"
    )


def start_deployment(
    deployment: str,
    parameters: dict[str, Any],
    name: str,
    console: Console,
    written: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[], Outcome | None]:
    """Run a deployment on the local server, which is started if need be.

    The deployment is registered anew with the settings as they are here. The store is the one that is configured here,
    though the serving process may have been started with another.

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
    served = server.served_environment(Runtime.current().state_dir)
    is_elsewhere = served is not None and served.get("RAGEN_STORE") != os.environ.get("RAGEN_STORE")
    if parameters.get("store") is None and is_elsewhere:
        parameters = {**parameters, "store": Runtime.current().store}
    begun = FlowRun.start(deployment, parameters, name)
    console.print(f"Prefect: {begun.page}", highlight=False, soft_wrap=True)
    command = f"$ prefect deployment run {deployment}{_flags(parameters, written)}"
    console.print(command, highlight=False, markup=False, soft_wrap=True)
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


def write_report(store: Store, run: str, output: Path | None, wanted: Sequence[int] = ()) -> Path:
    """Write the report of a run and return where; `wanted` are iterations whose trajectories must be in it."""
    from starpo.ragen.evidence.report.data import gather
    from starpo.ragen.evidence.report.page import render_report

    path = output or Path(Runtime.current().state_dir) / "reports" / f"{run}.html"
    with Console(stderr=True).status(f"reading {run}") as status:
        data = gather(store, run, wanted=wanted, on_batch=lambda what: status.update(plain(f"reading {run}: {what}")))
        return _write(path, render_report(data))


def write_comparison(store: Store, runs: Sequence[str], output: Path, title: str | None = None) -> Path:
    """Write a page about several runs (`.html`), or draw their success curves (`.svg`), and return where."""
    if output.suffix == ".html":
        from starpo.ragen.evidence.report.comparing import gather_runs
        from starpo.ragen.evidence.report.comparison_page import render_comparison

        return _write(output, render_comparison(gather_runs(store, runs), title or "Comparison of runs", store.url))
    if output.suffix != ".svg":
        raise ConfigError(
            f"'{output}' is of no kind that a comparison can have; give a name that ends in .html (a page with curves, "
            "settings and shared stages) or .svg (a picture of the success curves)"
        )
    from starpo.ragen.evidence.report.comparison import Curve, draw_comparison

    records = [store.runs.get(run) for run in runs]
    curves = [
        Curve(
            record.name,
            record.preset or record.flow,
            [(p["iteration"], p["success"], p["low"], p["high"]) for p in evaluation_curve(store, record)],
        )
        for record in records
    ]
    return _write(output, draw_comparison(curves, title or "Success by run"))


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); name another file with --output") from error
    return path.resolve()


def _flags(parameters: dict[str, Any], written: Mapping[str, str]) -> str:
    flags = {key: shlex.quote(f"{key}={json.dumps(value)}") for key, value in parameters.items()} | {
        key: text for key, text in written.items() if key in parameters
    }
    return "".join(f" -p {flag}" for flag in flags.values())
