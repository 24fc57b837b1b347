"""Live progress of a flow run in a terminal: iteration, success, reward std, time left."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ragen.errors import StarPOError
from ragen.store import Store
from ragen.store.runs import RunRecord, RunState

POLL_S = 0.5


class RunFailedError(StarPOError):
    """The flow run did not complete."""


def follow_flow_run(flow_run_id: str, store_url: str, console: Console) -> str:
    """Show a flow run until it ends.

    Args:
        flow_run_id: Prefect's id of the flow run.
        store_url: The store it writes to; that is where it says which run it is and how far.
        console: Where to draw; without a terminal, a line for each change is printed instead.

    Returns:
        The run's name.

    Raises:
        RunFailedError: If the flow run failed, crashed or was cancelled; the message is the run's own.
    """
    store = Store(store_url)
    with _bar(console) as bar:
        row = bar.add_task("waiting for the run to start", total=None, numbers="")
        record, said = None, ""
        while True:
            record = record or _find(store, flow_run_id)
            state = store.runs.state(record.run) if record else None
            if state:
                said = _show(bar, row, state, said, console)
            ended = _ended(flow_run_id)
            if ended:
                break
            time.sleep(POLL_S)
    record = record or _find(store, flow_run_id)
    if ended != "COMPLETED" or record is None:
        reason = store.runs.state(record.run).message if record else _server_message(flow_run_id)
        raise RunFailedError(f"the run ended as {ended.lower()}: {reason}")
    return record.run


def _bar(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _show(bar: Progress, row: Any, state: RunState, said: str, console: Console) -> str:
    facts = state.facts
    done, total = facts.get("iteration", 0), facts.get("iterations")
    fraction = facts.get("fraction")
    description = f"iteration {done}/{total} · {state.message}" + (f" {fraction:.0%}" if fraction else "")
    bar.update(row, description=description, completed=done, total=total, numbers=_numbers(facts))
    line = f"iteration {done}/{total} {_numbers(facts)}"
    if not console.is_terminal and line != said:
        console.print(line, highlight=False)
    return line


def _numbers(facts: dict[str, Any]) -> str:
    shown = []
    for name, label, form in (
        ("evaluation", "panel success", "{:.3f}"),
        ("success", "success", "{:.3f}"),
        ("reward_std", "reward std", "{:.2f}"),
        ("seconds_left", "left", "{:.0f} s"),
    ):
        if facts.get(name) is not None:
            shown.append(f"{label} {form.format(facts[name])}")
    return " · ".join(shown)


def _find(store: Store, flow_run_id: str) -> RunRecord | None:
    return next((r for r in store.runs.list() if flow_run_id in r.flow_run_ids), None)


def _ended(flow_run_id: str) -> str | None:
    """The flow run's final state type, or None while it goes on."""
    state = _read(flow_run_id).state
    return str(state.type.value) if state is not None and state.is_final() else None


def _server_message(flow_run_id: str) -> str:
    state = _read(flow_run_id).state
    return (state.message if state else None) or "no reason was given; see the log of the serving process"


def _read(flow_run_id: str) -> Any:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_flow_run(flow_run_id)  # type: ignore[arg-type]
