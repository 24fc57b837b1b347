"""What a run shows in Prefect: its name, its progress, a summary per iteration, and a link to its files.

Failures to send are only logged: an outdated page is no reason to stop training.
"""

import logging
import math
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.events import emit_event

from starpo.flows.markdown import artifact_key

_PROGRESS_EVERY_S = 5.0
"""Minimum interval between progress updates, in seconds."""

_SILENT_S = 60.0
"""Pause after a failure to send, in seconds: without a server, every attempt would wait for its timeout."""


class Announcements:
    """The Prefect artifacts of one run, for use inside its flow."""

    def __init__(self, run: str, address: str, log: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        """Prepare the announcements; nothing is sent yet.

        Args:
            run: The run's name.
            address: URL of its folder, for a browser.
            log: Logger for failures to send.
        """
        self._run = run
        self._address = address
        self._log = log
        self._key = artifact_key(f"run-{run}")
        self._progress: UUID | None = None
        self._progress_at = -math.inf
        self._silent_until = -math.inf

    def begin(self) -> None:
        """Announce the run."""
        self._send(self._take_name)
        self._send(self._begin)

    def iteration(self, done: int, total: int, summary: str | None) -> None:
        """Announce that an iteration is complete.

        Args:
            done: Iterations so far.
            total: Iterations when the run ends.
            summary: Markdown summary of the iteration; None to send none.
        """
        if summary is not None:
            self._send(create_markdown_artifact, summary, key=self._key, description=f"{self._run}, iteration {done}")
        if done == total or time.monotonic() - self._progress_at >= _PROGRESS_EVERY_S:
            self._progress_at = time.monotonic()
            self._send(self._show_progress, 100.0 * done / total)

    def collapse(self, iteration: int, status: str, words: str) -> None:
        """Emit the event `starpo.run.STATUS`, which automations can react to (infra/automations).

        Args:
            iteration: Iteration that shows it: updates completed before it.
            status: 'warning', 'stalled', 'collapsing' or 'collapsed'.
            words: The evidence, in words.
        """
        resource = {"prefect.resource.id": f"starpo.run.{self._run}", "prefect.resource.name": self._run}
        self._send(emit_event, f"starpo.run.{status}", resource, payload={"iteration": iteration, "words": words})

    def _take_name(self) -> None:
        """Rename the flow run to the run's name, however it was started."""
        context = FlowRunContext.get()
        if context is not None and context.flow_run is not None and context.flow_run.name != self._run:
            with get_client(sync_client=True) as client:
                client.update_flow_run(context.flow_run.id, name=self._run)

    def _begin(self) -> None:
        self._progress = create_progress_artifact(0.0, description=f"run {self._run}")  # type: ignore[assignment]
        create_link_artifact(self._address, key=f"{self._key}-files", description="keys of its artifacts, by iteration")

    def _show_progress(self, percent: float) -> None:
        if self._progress is not None:
            update_progress_artifact(self._progress, percent)

    def _send(self, call: Callable[..., object], *args: object, **kwargs: object) -> None:
        if time.monotonic() < self._silent_until:
            return
        try:
            call(*args, **kwargs)
        except Exception as error:
            self._silent_until = time.monotonic() + _SILENT_S
            self._log.warning("an artifact of run %s could not be sent to Prefect: %s", self._run, error)
