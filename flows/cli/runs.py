"""`ragen runs`: the runs of a store, newest first."""

from typing import Any

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.listing import at_a_glance, print_rows, run_facts
from starpo.flows.console.terminal import Console, say
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store


def runs(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the runs of a store, newest first."""
    opened = open_store(store)
    if store is not None:  # the configured one comes into being with its first run
        opened.expect()
    print_runs(opened, as_json)


def print_runs(store: Store, as_json: bool) -> None:
    """All runs, newest first."""
    facts = sorted(
        (_facts_or_fault(store, run) for run in store.runs.names()),
        key=lambda row: (row["created"] or "", row["run"]),
        reverse=True,
    )
    rows = facts if as_json else [at_a_glance(row) for row in facts]
    print_rows(rows, as_json, f"runs in {store.url}", f"no runs in {store.url} yet: `ragen train sokoban` makes one")
    if not as_json:
        for row in facts:
            if row["fault"]:
                say(Console(), f"{row['run']} is damaged: {row['fault']}")


def _facts_or_fault(store: Store, run: str) -> dict[str, Any]:
    """What is known of a run; a damaged one hides none of the others."""
    created = None
    try:
        record = store.runs.get(run)
        created = record.created.isoformat(timespec="seconds")
        return run_facts(store, record)
    except StoreError as error:
        unknown = dict.fromkeys(("flow", "preset", "iterations", "success_first", "success_last"))
        return {"run": run, "state": "damaged", **unknown, "created": created, "store": store.url, "fault": str(error)}
