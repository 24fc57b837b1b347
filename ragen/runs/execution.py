"""Where a run's stages are carried out: in this process, or as Prefect tasks (`flows.prefect_execution`).

Work --Execution.carry_out, submit--> stored outputs, kind -> key

A run's records, keys and digests do not depend on it.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from starpo.ragen.core.errors import is_transient
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store

NUM_ATTEMPTS = 4
"""Attempts at a stage whose I/O fails, with pauses of 1, 2 and 4 seconds."""


class Pending(Protocol):
    """A stage that was submitted."""

    def result(self) -> Keys:
        """Wait for the stage and return its outputs, or raise its error."""


class Execution(Protocol):
    """Carries out stages.

    Attributes:
        log: Logger of the run.
        cancellations: Errors that mean that the run was stopped from outside.
        placement: Where its stages play and learn; closed by whoever opened it.
    """

    log: logging.Logger | logging.LoggerAdapter[Any]
    cancellations: tuple[type[BaseException], ...]
    placement: ModelPlacement

    def carry_out(self, store_url: str, work: Work, title: str) -> Keys:
        """Carry out a stage unless it is stored, with retries after I/O failures, and return its outputs."""

    def submit(self, store_url: str, work: Work, title: str) -> Pending:
        """Begin to carry out a stage in a thread."""

    def begin(self, run: str, address: str, store: str) -> None:
        """Show, outside of the store, that a run begins; the addresses are those of its folder and of the store."""

    def show_success(self, run: str, panel: str, metrics: dict[int, dict[str, float]]) -> None:
        """Show, outside of the store, the success up to now, from the metrics of each iteration."""

    def announce_collapse(self, run: str, iteration: int, status: str, words: str) -> None:
        """Tell, outside of the store, that a run shows signs of a collapse: at which iteration, 'warning', 'stalled',
        'collapsing' or 'collapsed', and the evidence in words."""


class InProcess:
    """Execution in this process, without Prefect. See `Execution`."""

    log: logging.Logger | logging.LoggerAdapter[Any] = logging.getLogger("starpo.run")
    cancellations: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    def __init__(self, placement: ModelPlacement) -> None:
        self.placement = placement

    def carry_out(self, store_url: str, work: Work, title: str) -> Keys:
        """Carry out a stage unless it is stored, with retries after I/O failures, and return its outputs."""
        retrying = Retrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(NUM_ATTEMPTS),
            wait=wait_exponential(multiplier=1),
            before_sleep=lambda state: self.log.warning(
                "stage %s: %s; it is repeated", title, state.outcome and state.outcome.exception()
            ),
            reraise=True,
        )
        return retrying(lambda: work.carry_out(Store(store_url), self.placement))

    def submit(self, store_url: str, work: Work, title: str) -> Pending:
        """Begin to carry out a stage in a thread."""
        pool = ThreadPoolExecutor(1, thread_name_prefix=work.stage.name)
        future = pool.submit(self.carry_out, store_url, work, title)
        pool.shutdown(wait=False)  # its thread ends with the stage
        return future

    def _show_nothing(self, *_: object) -> None:
        """Do nothing: the run's state in the store tells all."""

    begin = show_success = announce_collapse = _show_nothing
