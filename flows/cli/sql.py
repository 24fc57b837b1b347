"""`starpo sql`: one SQL query over the stored data of runs; the result as a table, JSON, CSV or Parquet."""

import sys
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.answers import print_json_rows, write_csv, write_parquet
from starpo.flows.console.documents.analysis import View, ViewColumn
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, write
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.audit.database import described_views
from starpo.ragen.evidence.audit.named import matching_runs
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.evidence.audit.views import DERIVED_VIEWS

_MAX_ROWS = 100
"""Maximum number of rows printed to a terminal."""


def _print_views(context: typer.Context, wanted: bool) -> None:
    if wanted:
        print_views(context.params["as_json"])
        raise typer.Exit


def sql(
    runs: Annotated[list[str] | None, typer.Argument(help="Names of runs, or patterns such as 'sokoban-*'.")] = None,
    query: Annotated[str, typer.Argument(help="One SELECT in DuckDB's SQL.", show_default=False)] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write all rows to this CSV file.")] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write all rows to this Parquet file.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file before reading it.")] = False,
    _views: Annotated[
        bool, typer.Option("--views", callback=_print_views, help="List the views and their columns.")
    ] = False,
) -> None:
    """Query runs in SQL: views turns, trajectories, rewards, selection, samples, metrics, episodes."""
    if not runs:
        raise typer.BadParameter("name a run and a query: starpo sql RUN 'select count(*) from turns'")
    opened = open_store(store)
    if sum((as_json, csv is not None, parquet is not None)) > 1:
        raise ConfigError("give only one of --json, --csv FILE and --parquet FILE")
    with open_database(opened, matching_runs(opened, runs), should_verify=verify) as database:
        with Console(stderr=True).status("reading"):
            answer = database.stream(query)
        if csv is not None:
            write(f"{write_csv(answer, csv)} rows in {csv}")
        elif parquet is not None:
            write(f"{write_parquet(answer, parquet)} rows in {parquet}")
        elif as_json:
            print_json_rows(answer, sys.stdout)
        else:
            _print_answer(answer, Console())


def print_views(as_json: bool) -> None:
    """Print the views of `starpo sql` with their columns, types and meaning."""
    views = [_view(name, schema) for name, schema in described_views().items()]
    if as_json:
        print_json(views)
        return
    console = Console()
    for view in views:
        console.print(f"\n{view.view}", style="bold", end="")
        console.print(f": {view.about}, from {', '.join(view.sources)}" if view.sources else "")
        print_table(console, [column.model_dump() for column in view.columns])


def _view(name: str, schema: pa.Schema) -> View:
    columns = [ViewColumn(column=field.name, type=str(field.type), meaning=_meaning(field)) for field in schema]
    if (derived := DERIVED_VIEWS.get(name)) is None:
        return View(view=name, columns=columns)
    return View(view=name, about=derived.about, sources=list(derived.sources), columns=columns)


def _print_answer(answer: pa.RecordBatchReader, console: Console) -> None:
    """Print the first rows of a result, and whether there are more."""
    rows: list[dict[str, Any]] = []
    for batch in answer:
        rows += batch.slice(0, _MAX_ROWS + 1 - len(rows)).to_pylist()
        if len(rows) > _MAX_ROWS:
            break
    print_table(console, rows[:_MAX_ROWS], names=answer.schema.names, are_names_exact=True)
    if len(rows) > _MAX_ROWS:
        console.print(f"the first {_MAX_ROWS} rows; --json, --csv FILE and --parquet FILE give all of them")


def _meaning(field: pa.Field) -> str:
    return field.metadata[b"meaning"].decode()
