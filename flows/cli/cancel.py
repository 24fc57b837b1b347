"""`starpo cancel`: have Prefect stop a run, wait until no process works on it, and record the outcome.

A run's process is stopped by the process that serves the deployments. Without the latter, or without the server,
nothing is stopped: the error names the run's process.
"""

import time
from collections.abc import Sequence

from starpo.flows.background import ServerError
from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.deployment import unfinished_in
from starpo.flows.console.documents.training import Cancellation
from starpo.flows.console.follow import POLL_S
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.flow_run import FlowRun, parent_name
from starpo.ragen.core.errors import StarPOError, StoreError
from starpo.ragen.store import Store

_PATIENCE_S = 90.0
"""Timeout. Prefect gives a run 30 s to end gracefully, and polls for cancelled ones at least every 15 s."""

_CANCELLED = "by `starpo cancel`; the same settings continue it"


class CancelError(StarPOError):
    """A run could not be cancelled."""


_WORDS = {
    "cancelled": "run {} is cancelled; what it stored is kept, and the same settings continue it",
    "finished before": "run {} finished before it could be cancelled",
    "not running": "run {} is not running ({}): there is nothing to cancel",
}


def cancel(run: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Stop a running or waiting run, ablation or sweep; what it stored is kept."""
    cancellation = cancel_run(open_store(store), run, Console(stderr=as_json))
    if as_json:
        print_json(cancellation)
    else:
        say(Console(), _WORDS[cancellation.outcome].format(run, cancellation.state))


def cancel_run(store: Store, run: str, console: Console) -> Cancellation:
    """Stop a run.

    Args:
        store: Where the run is stored; ablations and sweeps are known only to Prefect.
        run: The run's name.
        console: Console for the progress.

    Raises:
        StoreError: If neither the store nor Prefect has such a run.
        CancelError: If it is running and cannot be stopped from here; the message says what to do.
    """
    try:
        flow_runs, silence = unfinished_in(store, run), ""
    except ServerError as error:
        flow_runs, silence = [], str(error)
    is_known = store.runs.find(run) is not None
    stoppable = [FlowRun(flow_run.id) for flow_run in flow_runs if flow_run.deployment_id is not None]
    if stoppable:
        return _cancel(store, run, stoppable, console, is_known=is_known)
    if not is_known:
        _refuse_unknown(store, run, silence)
    if store.runs.is_running(run):
        whole = next((name for flow_run in flow_runs if (name := parent_name(flow_run))), None)
        why = f"as a part of {whole}, which `starpo cancel {whole}` stops" if whole else "outside Prefect"
        why += f", as far as is known: {silence}" if silence else ""
        raise CancelError(f"run {run} is running, {why}. Its process is {store.runs.process(run)}")
    state = store.runs.state(run)
    status = "interrupted" if state is None or state.status == "running" else state.status
    return Cancellation(run=run, outcome="not running", state=status)


def _cancel(store: Store, run: str, flow_runs: Sequence[FlowRun], console: Console, *, is_known: bool) -> Cancellation:
    for flow_run in flow_runs:
        flow_run.cancel()
    deadline = time.monotonic() + _PATIENCE_S
    with console.status(f"cancelling run {run}"):
        while None in (outcomes := [flow_run.ended() for flow_run in flow_runs]) or (
            is_known and store.runs.is_running(run)
        ):
            if time.monotonic() > deadline:
                process = store.runs.process(run) if is_known else "not known"
                raise CancelError(
                    f"run {run} was asked to stop, but has not within {_PATIENCE_S:.0f} s. Its process is {process}. "
                    f"Is the process that serves the deployments running (`starpo up`)? {flow_runs[0].page} "
                    "shows the run"
                )
            time.sleep(POLL_S)
    if all(outcome is not None and outcome.status == "completed" for outcome in outcomes):
        return Cancellation(run=run, outcome="finished before", state="completed" if is_known else None)
    state = store.runs.state(run) if is_known else None
    if is_known and (state is None or state.status != "completed"):  # a restarted run may be complete
        store.runs.set_state(run, "cancelled", _CANCELLED)
        state = store.runs.state(run)
    return Cancellation(run=run, outcome="cancelled", state=state.status if state else None)


def _refuse_unknown(store: Store, run: str, silence: str) -> None:
    try:
        store.runs.get(run)
    except StoreError as error:
        unknown = f"Whether Prefect has an ablation or a sweep of that name is not known: {silence}"
        more = unknown if silence else "Prefect has no unfinished run of that name either"
        raise StoreError(f"{error}\n{more}") from error
