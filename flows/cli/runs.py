"""`starpo runs`: the runs of a store, newest first, or as a tree of forks and replays."""

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from rich.tree import Tree

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.documents.runs import BranchFacts, RunFacts, SettingChange
from starpo.flows.console.listing import at_a_glance, print_rows
from starpo.flows.console.table import wrapped
from starpo.flows.console.terminal import Console, plain, print_json, say
from starpo.ragen.core.counts import counted
from starpo.ragen.core.visible import quoted
from starpo.ragen.evidence.run_facts import facts_or_fault
from starpo.ragen.store import Store

if TYPE_CHECKING:
    from starpo.ragen.runs.forks import Branch

Facts = Callable[[str], dict[str, Any]]
"""Run -> its row in the list."""


def runs(
    store: StoreOption = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Draw the tree of forks and replays: which run branches from which.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the runs of a store, newest first, or draw the tree of their forks."""
    opened = open_store(store)
    if store is not None:  # the configured store is only created by its first run
        opened.expect()
    if tree:
        print_tree(opened, as_json)
    else:
        print_runs(opened, as_json)


def print_tree(store: Store, as_json: bool) -> None:
    """Print all runs, the oldest first, each under the run that it branches from."""
    from starpo.ragen.runs.forks import family  # all settings, which a list of runs does not need

    roots = family(store)
    facts = cache(partial(facts_or_fault, store))
    if as_json:
        print_json([_branch(facts, root) for root in roots])
        return
    console = Console()
    names = store.runs.names()
    if not names:
        say(console, f"no runs in {store.url} yet: `starpo train sokoban` makes one")
    for root in roots:
        console.print(_drawn(facts, root))
    _print_banners(console, [facts(run) for run in names])


def _drawn(facts_of: Facts, branch: "Branch") -> Tree:
    known = facts_of(branch.run.name)
    facts = at_a_glance(known)
    flow = "" if branch.run.flow == "starpo" else f"  {plain(branch.run.flow).plain}"
    done = "" if known["fault"] else f"  {counted(known['iterations'], 'iteration')}  {facts['success']}"
    label = Text.assemble((plain(branch.run.name).plain, "bold"), f"{flow}  {facts['state']}{done}")
    if branch.start is not None:
        label.append(f"\nfrom {branch.start}: {_changes(branch)}", style="dim")
    tree = Tree(label)
    for fork in branch.forks:
        tree.add(_drawn(facts_of, fork))
    return tree


def _changes(branch: "Branch") -> str:
    if branch.changed is None:
        return "one of the two has settings of another release"
    changes = [f"{path} {quoted(was)} -> {quoted(now)}" for path, (was, now) in branch.changed.items()]
    return ", ".join(changes) or "the same settings"


def _branch(facts_of: Facts, branch: "Branch") -> BranchFacts:
    changed = None
    if branch.changed is not None:
        changed = {path: SettingChange(was=was, now=now) for path, (was, now) in branch.changed.items()}
    forks = [_branch(facts_of, fork) for fork in branch.forks]
    return BranchFacts(**facts_of(branch.run.name), start=branch.start, changed=changed, forks=forks)


def print_runs(store: Store, as_json: bool) -> None:
    """Print all runs, newest first."""
    facts = sorted(
        (facts_or_fault(store, run) for run in store.runs.names()),
        key=lambda row: (row["created"] or "", row["run"]),
        reverse=True,
    )
    if as_json:
        print_json([RunFacts(**row) for row in facts])
        return
    rows = [at_a_glance(row) for row in facts]
    print_rows(rows, f"runs in {store.url}", f"no runs in {store.url} yet: `starpo train sokoban` makes one")
    _print_banners(Console(), facts)


def _print_banners(console: Console, facts: list[dict[str, Any]]) -> None:
    for row in facts:
        if row["fault"]:
            say(console, f"{row['run']} is damaged: {row['fault']}")
        elif row["warning"]:
            say(console, wrapped(f"{row['run']}: {row['warning']}", console.width))
