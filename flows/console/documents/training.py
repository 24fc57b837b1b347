"""Documents on runs that begin, go on or end, and on what serves and shows them."""

from typing import Literal

from starpo.flows.console.documents.document import JsonDocument
from starpo.flows.console.documents.runs import RunFacts


class FinishedRun(RunFacts):
    """A run that has just ended; after a rollback, the fork that it ended as."""

    report: str
    """File with its report."""


class ProgressLine(JsonDocument):
    """A line on a run: whenever an iteration, its state or a warning is new, else every 20 seconds; the last one when
    it has ended."""

    run: str
    """Its name; after a rollback, that of the fork."""
    state: Literal["waiting", "running", "completed", "failed", "cancelled", "interrupted"]
    """waiting: nothing works on it yet."""
    activity: str
    """What it does; at the end, how it ended."""
    numbers: dict[str, float]
    """iteration, iterations, and as far as known success (training), evaluation (panel), reward_std, seconds_left."""
    warning: str
    """Why it learns nothing at present; empty if it learns."""
    is_over: bool
    """Whether this is the last line."""


class Cancellation(JsonDocument):
    """What `starpo cancel` found and did."""

    run: str
    """Name of the run, ablation or sweep."""
    outcome: Literal["cancelled", "finished before", "not running"]
    """not running: there was nothing to stop."""
    state: str | None
    """State of the run in the store; null for an ablation or a sweep."""


class ServedAddresses(JsonDocument):
    """What is up."""

    prefect: str
    """Address of Prefect's pages."""
    runs: str | None
    """Address of the runs' pages; null if `starpo view` is to be started."""


class Stopped(JsonDocument):
    """What was up."""

    stopped: list[str]
    """Processes that were stopped."""
    runs: list[str]
    """Active runs that were stopped; the same `starpo train` continues them."""


class ServedPage(JsonDocument):
    """Where the runs of a store can be seen; the command goes on serving them."""

    store: str
    """Address of the store."""
    address: str
    """Address to open; beyond loopback it holds a token."""


class WrittenReport(JsonDocument):
    """A page that was written."""

    run: str
    """Name of the run."""
    file: str
    """The page."""
