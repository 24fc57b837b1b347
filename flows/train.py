"""What `ragen train` and `ragen report` do: run a deployment, follow it, write its report."""

import json
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from flows import server
from flows.follow import follow_flow_run
from flows.listing import curve_line
from flows.presets import names, preset
from ragen.config.runtime import Runtime
from ragen.errors import ConfigError
from ragen.store import Store


def train_preset(
    name: str,
    *,
    overrides: dict[str, Any],
    seed: int | None,
    iterations: int | None,
    store: str | None,
    run: str | None,
) -> None:
    """Run the deployment `starpo/<name>` on the local server and follow it to its end."""
    if name not in names():
        raise ConfigError(f"no preset '{name}'; presets: {', '.join(names())}")
    short = {"seed": seed, "iterations": iterations}
    preset(name, {**overrides, **{k: v for k, v in short.items() if v is not None}})  # wrong settings fail here, at once
    runtime, console = Runtime(), Console()
    store_url = store or runtime.store
    parameters = {
        key: value
        for key, value in {**short, "overrides": overrides or None, "store": store, "run": run}.items()
        if value is not None
    }
    with console.status("starting the local Prefect server (about 20 s the first time)"):
        url = server.start(runtime.state_dir)
    console.print(f"Prefect: {url.removesuffix('/api')}", highlight=False)
    console.print(f"$ prefect deployment run starpo/{name}{_flags(parameters)}", highlight=False, markup=False)
    flow_run_id = _run_deployment(f"starpo/{name}", parameters)
    run_name = follow_flow_run(flow_run_id, store_url, console)
    opened = Store(store_url)
    report = write_report(opened, run_name, None)
    console.print(f"run        {run_name}", highlight=False)
    console.print(f"success    {curve_line(opened, run_name)}", highlight=False)
    console.print(f"artifacts  {opened.display_url}", highlight=False, soft_wrap=True)
    console.print(f"report     {report}", highlight=False, soft_wrap=True)
    console.print(f"more       ragen show {run_name}", highlight=False)


def write_report(store: Store, run: str, output: Path | None) -> Path:
    """Write the report of a run and return where."""
    from ragen.report.data import gather
    from ragen.report.page import render_report

    path = output or Path(Runtime().state_dir) / "reports" / f"{run}.html"
    page = render_report(gather(store, run))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path.resolve()


def _run_deployment(deployment: str, parameters: dict[str, Any]) -> str:
    from prefect.deployments import run_deployment

    flow_run = run_deployment(deployment, parameters=parameters, timeout=0, as_subflow=False)
    return str(flow_run.id)  # type: ignore[union-attr]


def _flags(parameters: dict[str, Any]) -> str:
    return "".join(f" -p {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in parameters.items())
