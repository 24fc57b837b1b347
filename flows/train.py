"""What `ragen train`, `report` and `compare` do: run a deployment, follow it, write pages and pictures."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flows import server
from flows.follow import Outcome, follow_run
from flows.listing import evaluation_curve, success_line
from flows.presets import names, preset
from flows.record import default_run_name
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
    short = {key: value for key, value in {"seed": seed, "iterations": iterations}.items() if value is not None}
    config = preset(name, {**overrides, **short})  # wrong settings fail here, before anything is started
    runtime, console = Runtime(), Console()
    opened, run_name = Store(store or runtime.store), run or default_run_name(name, config)
    if run is not None:  # a name of the user's own must not belong to a run with other settings
        opened.runs.create(run, flow="starpo", preset=name, config=config.model_dump(mode="json"))
    optional = {"overrides": overrides or None, "store": store, "run": run}
    parameters = {**short, **{key: value for key, value in optional.items() if value is not None}}
    with console.status("starting the local Prefect server (about 20 s the first time)"):
        url = server.start(runtime.state_dir)
    console.print(f"Prefect: {url.removesuffix('/api')}", highlight=False)
    console.print(f"$ prefect deployment run starpo/{name}{_flags(parameters)}", highlight=False, markup=False)
    flow_run = _FlowRun(f"starpo/{name}", parameters)
    follow_run(opened, run_name, console, flow_run.ended)
    report = write_report(opened, run_name, None)
    for label, value in {
        "run": run_name,
        "success": success_line(opened, run_name),
        "artifacts": opened.url if "://" in opened.url else str(Path(opened.url).resolve()),
        "report": str(report),
        "more": f"ragen show {run_name}",
    }.items():
        console.print(f"{label:<10} {value}", highlight=False, markup=False, soft_wrap=True)


def write_report(store: Store, run: str, output: Path | None) -> Path:
    """Write the report of a run and return where."""
    from ragen.report.data import gather
    from ragen.report.page import render_report

    path = output or Path(Runtime().state_dir) / "reports" / f"{run}.html"
    page = render_report(gather(store, run))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path.resolve()


def write_comparison(store: Store, runs: Sequence[str], output: Path, title: str) -> Path:
    """Draw the runs' success curves into an SVG file and return where."""
    from ragen.report.comparison import Curve, draw_comparison

    records = [store.runs.get(run) for run in runs]
    curves = [
        Curve(
            record.name,
            record.preset or record.flow,
            [(p["iteration"], p["success"], p["low"], p["high"]) for p in evaluation_curve(store, record)],
        )
        for record in records
    ]
    output.write_text(draw_comparison(curves, title), encoding="utf-8")
    return output.resolve()


_PREFECT_PREFIX = "Flow run encountered an exception: "


class _FlowRun:
    """A run of a deployment on the server."""

    def __init__(self, deployment: str, parameters: dict[str, Any]) -> None:
        from prefect.deployments import run_deployment

        self._id = run_deployment(deployment, parameters=parameters, timeout=0, as_subflow=False).id  # type: ignore[union-attr]

    def ended(self) -> Outcome | None:
        """Prefect's final state; None while it goes on."""
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            state = client.read_flow_run(self._id).state
        if state is None or not state.is_final():
            return None
        return Outcome(state.type.value.lower(), (state.message or "").removeprefix(_PREFECT_PREFIX))


def _flags(parameters: dict[str, Any]) -> str:
    return "".join(f" -p {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in parameters.items())
