"""Execution of a run's stages as Prefect tasks, inside a flow."""

import logging
from typing import Any

from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger

from starpo.flows.announcements import Announcements
from starpo.flows.execution import Announcer, Pending
from starpo.ragen.work import Keys, Work
from starpo.tasks.stage import stage_task


class InPrefect:
    """Execution as Prefect tasks; created inside a flow. See `flows.execution.Execution`."""

    cancellations: tuple[type[BaseException], ...] = (TerminationSignal,)

    def __init__(self) -> None:
        self.log: logging.Logger | logging.LoggerAdapter[Any] = get_run_logger()
        logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # task states already show what has finished

    def carry_out(self, store_url: str, work: Work, title: str) -> Keys:
        """Carry out a stage as a task run and return its outputs."""
        return stage_task(work, title)(store_url, work)

    def submit(self, store_url: str, work: Work, title: str) -> Pending:
        """Begin to carry out a stage as a task run in a thread."""
        return stage_task(work, title).submit(store_url, work)

    def announcer(self, run: str, address: str) -> Announcer:
        """Return the announcements of a run to Prefect's server."""
        return Announcements(run, address, self.log)
