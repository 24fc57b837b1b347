"""Execution of a run's stages as Prefect tasks, inside a flow."""

import logging
import re
from collections.abc import Callable
from typing import Any

from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.events import emit_event
from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger

from starpo.flows import view_server
from starpo.flows.stage_task import stage_task
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.runs.execution import Pending
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Work


class InPrefect:
    """Execution as Prefect tasks; created inside a flow. See `ragen.runs.execution.Execution`."""

    cancellations: tuple[type[BaseException], ...] = (TerminationSignal,)

    def __init__(self, placement: ModelPlacement) -> None:
        self.placement = placement
        self.log: logging.Logger | logging.LoggerAdapter[Any] = get_run_logger()
        logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # task states already show what has finished

    def carry_out(self, store_url: str, work: Work, title: str) -> Keys:
        """Carry out a stage as a task run and return its outputs."""
        return stage_task(work, title)(store_url, work, self.placement)

    def submit(self, store_url: str, work: Work, title: str) -> Pending:
        """Begin to carry out a stage as a task run in a thread."""
        return stage_task(work, title).submit(store_url, work, self.placement)

    def begin(self, run: str, address: str, store: str) -> None:
        """Give the flow run the run's name, however it was started, and links to the run's files and to its page."""
        self._send(_take_name, run)
        self._send(
            create_link_artifact, address, key=_key(run, "files"), description="keys of its artifacts, by iteration"
        )
        page = view_server.url(Runtime.current().state_dir, store, run)
        if page:
            self._send(create_link_artifact, page, key=_key(run, "page"), description="its page, live")

    def show_success(self, run: str, panel: str, metrics: dict[int, dict[str, float]]) -> None:
        """Show success by iteration as a table, which replaces the one before; empty where it was not measured."""
        on_panel = f"evaluation/{panel}/success"
        names = {"panel": on_panel, "low": f"{on_panel}_low", "high": f"{on_panel}_high"}
        names = {"training": "rollout/success_rate", **names}
        rows = [
            {"iteration": at, **{label: values.get(name) for label, name in names.items()}}
            for at, values in sorted(metrics.items())
            if any(name in values for name in names.values())
        ]
        self._send(create_table_artifact, rows, key=_key(run, "success"), description="success by iteration")

    def announce_collapse(self, run: str, iteration: int, status: str, words: str) -> None:
        """Emit the event `starpo.run.STATUS`, which automations can react to."""
        resource = {"prefect.resource.id": f"starpo.run.{run}", "prefect.resource.name": run}
        self._send(emit_event, f"starpo.run.{status}", resource, payload={"iteration": iteration, "words": words})

    def _send(self, call: Callable[..., object], *args: object, **kwargs: object) -> None:
        """Send something to Prefect's server; a failure is only logged, as it is no reason to stop training."""
        try:
            call(*args, **kwargs)
        except Exception as error:
            self.log.warning("Prefect could not be told of the run: %s", error)


def _key(run: str, what: str) -> str:
    """Return the key of a run's artifact, in the characters that Prefect allows."""
    return "run-" + re.sub("[^a-z0-9]", "-", run.lower()) + f"-{what}"


def _take_name(run: str) -> None:
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None and context.flow_run.name != run:
        with get_client(sync_client=True) as client:
            client.update_flow_run(context.flow_run.id, name=run)
