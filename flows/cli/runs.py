"""`ragen runs`: the runs of a store, newest first."""

from typing import Any

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.listing import at_a_glance, print_rows, run_facts
from starpo.flows.console.table import wrapped
from starpo.flows.terminal import Console, say
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store


def runs(
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of a store, newest first."""
    opened = open_store(store)
    if store is not None:  # the configured store is only created by its first run
        opened.expect()
    facts = sorted(
        (_facts_or_fault(opened, run) for run in opened.runs.names()),
        key=lambda row: (row["created"] or "", row["run"]),
        reverse=True,
    )
    rows = facts if as_json else [at_a_glance(row) for row in facts]
    print_rows(rows, as_json, f"runs in {opened.url}", f"no runs in {opened.url} yet: `ragen train sokoban` makes one")
    if not as_json:
        _print_banners(Console(), facts)


def _print_banners(console: Console, facts: list[dict[str, Any]]) -> None:
    for row in facts:
        if row["fault"]:
            say(console, f"{row['run']} is damaged: {row['fault']}")
        elif row["warning"]:
            say(console, wrapped(f"{row['run']}: {row['warning']}", console.width))


def _facts_or_fault(store: Store, run: str) -> dict[str, Any]:
    """Return the facts of a run, or its fault, so that a damaged run does not hide the others."""
    created = None
    try:
        record = store.runs.get(run)
        created = record.created.isoformat(timespec="seconds")
        return run_facts(store, record)
    except StoreError as error:
        counts = ("iterations", "updates", "hours", "num_evaluations", "success_first", "success_last")
        unknown = dict.fromkeys(("flow", "preset", *counts))
        known = {"created": created, "store": store.url, "warning": "", "fault": str(error)}
        return {"run": run, "state": "damaged", **unknown, **known}
