"""Ask runs: SQL over what they stored, named audits, and where an artifact comes from."""

from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.common import LOOK, JsonOption, RunArgument, StoreOption, app, open_store


def _print_views(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from starpo.flows.console.audit import print_views

        print_views(context.params["as_json"])
        raise typer.Exit


def _print_audits(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from starpo.flows.console.audit import print_audits

        print_audits(context.params["as_json"])
        raise typer.Exit


@app.command(rich_help_panel=LOOK)
def sql(
    runs: Annotated[list[str], typer.Argument(help="Names of runs; 'sokoban-*' stands for all that match.")],
    query: Annotated[str, typer.Argument(help="One SELECT in DuckDB's SQL.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write all rows to this CSV file.")] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write all rows to this Parquet file.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file that is read before reading it.")] = False,
    _views: Annotated[
        bool, typer.Option("--views", callback=_print_views, help="List the views and their columns.")
    ] = False,
) -> None:
    """Query runs in SQL: views turns, trajectories, rewards, selection, samples, metrics, episodes."""
    from starpo.flows.console.audit import answer

    answer(open_store(store), runs, query, as_json=as_json, csv=csv, parquet=parquet, should_verify=verify)


@app.command(rich_help_panel=LOOK)
def audit(
    run: RunArgument,
    names: Annotated[list[str] | None, typer.Argument(help="Audits; none: all. --list shows them.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each table to print.")] = 12,
    store: StoreOption = None,
    as_json: JsonOption = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file that is read before reading it.")] = False,
    _list: Annotated[bool, typer.Option("--list", callback=_print_audits, help="List the audits.")] = False,
) -> None:
    """Audit a run: duplicates, rewards, reasoning ... Exit code 1 if what is stored contradicts itself."""
    from starpo.flows.console.audit import audit_run

    if audit_run(open_store(store), run, names or [], rows=rows, as_json=as_json, should_verify=verify):
        raise typer.Exit(1)


@app.command(rich_help_panel=LOOK)
def lineage(
    artifact: Annotated[str, typer.Argument(help="kind/key, the beginning of a key, or RUN:ITERATION:STAGE.")],
    depth: Annotated[int, typer.Option(min=0, help="Steps to show; 0: all.")] = 2,
    dot: Annotated[bool, typer.Option("--dot", help="Print the graph for Graphviz.")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the graph as a Mermaid flow chart.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where an artifact comes from and what came of it. Exit code 1 if a part of its chain is gone."""
    from starpo.flows.console.audit import show_lineage

    if show_lineage(open_store(store), artifact, depth, as_json=as_json, as_dot=dot, as_mermaid=mermaid):
        raise typer.Exit(1)
