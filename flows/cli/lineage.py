"""`starpo lineage`: the ancestors and descendants of an artifact, as a tree or JSON."""

from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.documents.analysis import LineageEdge, LineageGraph, LineageWork
from starpo.flows.console.terminal import Console, print_json
from starpo.ragen.evidence.audit.lineage import SHOWN_DIGITS, Lineage, LineageStep, near
from starpo.ragen.evidence.audit.lineage import lineage as trace

_MAX_NAMES = 3


def lineage(
    artifact: Annotated[str, typer.Argument(help="kind/key, the beginning of a key, or RUN:ITERATION:STAGE.")],
    depth: Annotated[int, typer.Option(min=0, help="Steps to show; 0: all.")] = 2,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what an artifact was made from and what was made from it. Exit code 1 if part of the chain is gone."""
    opened, errors = open_store(store), Console(stderr=True)
    with errors.status("reading manifests") as status:
        whole = trace(opened, artifact, lambda done, total: status.update(f"reading manifests: {done} of {total}"))
    if as_json:
        print_json(lineage_document(near(whole, depth)))
    else:
        Console().print(draw_lineage(whole, depth))
    for key in whole.missing:
        errors.print("missing:", style="red", end=" ")
        errors.print(f"{key} is named as an input, but is not in {opened.url}")
    for fault in whole.unreadable:
        errors.print("unreadable elsewhere:", style="yellow", end=" ")
        errors.print(fault)
    if whole.missing:
        raise typer.Exit(1)


def draw_lineage(whole: Lineage, depth: int) -> Tree:
    """Draw two branches, ancestors and descendants of the work; every work is expanded once.

    Args:
        whole: The complete lineage.
        depth: Number of steps to draw; works further away are only counted. 0 for all.
    """
    tree = Tree(_line(whole.root))
    inputs: dict[str, list[tuple[str, str]]] = {}
    readers: dict[str, list[tuple[str, str]]] = {}
    for source, role, key in whole.edges:
        inputs.setdefault(key, []).append((role, source))
        readers.setdefault(source, []).append((role, key))
    for title, following, sign in (("made from", inputs, -1), ("led to", readers, +1)):
        branch = tree.add(Text(title, style="bold"))
        reachable = {key: work for key, work in whole.works.items() if work.distance * sign > 0}
        _grow(
            branch, whole.root.key, {key: following.get(key, []) for key in {whole.root.key, *reachable}}, whole, depth
        )
        if not reachable:
            branch.add(Text("nothing", style="dim"))
        further = [work for work in reachable.values() if depth and abs(work.distance) > depth]
        if further:
            farthest = max(further, key=lambda work: abs(work.distance))
            branch.add(Text(f"... and {len(further)} more, up to ", style="dim").append_text(_line(farthest)))
    return tree


def lineage_document(graph: Lineage) -> LineageGraph:
    """Return the graph as it is printed for machines, the nearest works first."""
    return LineageGraph(
        root=graph.root.key,
        works=[
            LineageWork(
                key=work.key,
                stage=work.stage or None,
                kinds=list(work.kinds),
                dropped=list(work.dropped),
                names=list(work.names),
                distance=work.distance,
                is_missing=work.is_missing,
                replay_fault=work.replay_fault or None,
            )
            for work in graph.works.values()
        ],
        edges=[LineageEdge(input=source, role=role, work=key) for source, role, key in graph.edges],
        missing=list(graph.missing),
        unreadable=list(graph.unreadable),
    )


def _grow(branch: Tree, root: str, following: dict[str, list[tuple[str, str]]], whole: Lineage, depth: int) -> None:
    """Grow the tree breadth-first: a work is expanded where it is nearest to the root, and only named elsewhere."""
    nodes, layer, distance = {root: branch}, [root], 0
    while layer and not (depth and distance == depth):
        distance += 1
        upcoming = []
        for parent in layer:
            for role, key in following.get(parent, []):
                if key not in following and key not in whole.missing:
                    continue
                line = Text(f"{role}: ", style="cyan").append_text(_line(whole.works[key]))
                child = nodes[parent].add(line)
                if key in nodes:
                    line.append(" (see there)", style="dim")
                else:
                    nodes[key] = child
                    upcoming.append(key)
        layer = upcoming


def _line(work: LineageStep) -> Text:
    """Format a work: stage, key, kinds of its artifacts, and where runs name it."""
    if work.is_missing:
        return Text(f"{work.key[:SHOWN_DIGITS]} is not in the store", style="red")
    line = Text(work.stage, style="bold").append(f" {work.key[:SHOWN_DIGITS]}", style="not bold")
    line.append(f" [{', '.join([*work.kinds, *(f'{kind} dropped' for kind in work.dropped)])}]", style="not bold dim")
    if work.replay_fault:
        line.append(f" cannot be replayed: {work.replay_fault}", style="yellow")
    names = ", ".join(work.names[:_MAX_NAMES])
    more = f" and {len(work.names) - _MAX_NAMES} more" if len(work.names) > _MAX_NAMES else ""
    return line.append(f" {names}{more}" if names else " (no run names it)", style="not bold green")
