"""`Database`: read-only SQL over Arrow data, restricted to the views.

DuckDB runs in memory, with access to files, the network, extensions and Python variables disabled and this
configuration locked. It never touches the store: views are Arrow data that this library reads for it, so SQL has no
file to name and nothing to write to.

    SQL -> checked against empty tables (syntax, names, which views) -> those views loaded -> record batches
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import ARROW, SPECIAL

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import QueryError, first_line
from starpo.ragen.core.visible import quoted
from starpo.ragen.evidence.audit.time_left import TimeLeft
from starpo.ragen.evidence.audit.views import (
    DATASET_VIEWS,
    DECODED,
    DERIVED_VIEWS,
    RECORD_VIEWS,
    RENAMED,
    VIEW_NAMES,
    stored_columns,
    stored_view,
)

BATCH_ROWS = 65_536
"""Rows per batch of a result."""

_GUARDS = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_WRITING_NODE = re.compile(r'"type":"(INSERT|UPDATE|DELETE|MERGE|COPY)\w*_NODE"')
"""Matched against DuckDB's syntax tree as JSON, where quotes inside string literals are escaped."""
_TABLE_NAME = re.compile(r'"table_name":"(\w+)"')
_HIDDEN_NAMES = ('"function_name":"query', '"error":true')
"""Markers of a tree that may hide view names: a string names them, as in `query('from turns')`, or there is no tree
(EXPLAIN with options)."""
_EXPLAIN = re.compile(r"^\s*explain\s+(analyze\s+)?(?!\()", re.IGNORECASE)
_NOTHING_BUT_READING = (
    f"SQL is read-only here, and sees only the views {', '.join(VIEW_NAMES)}; nothing was changed. "
    "Write one SELECT; --csv FILE and --parquet FILE write its result."
)

_MISSING_COLUMN = re.compile(r'column (?:named )?"(\w+)"', re.IGNORECASE)
_FUNCTION_FAILED = "executing the UDF"
_OUT_OF_MEMORY = "Out of Memory Error"

Load = Callable[[str, Path], Any]
"""View, folder for temporary files -> what DuckDB scans: an Arrow table or dataset with the columns of that view."""

Decode = Callable[[str, Sequence[int]], str | None]
"""Run, tokens -> their text; None if the run has no tokenizer. Called only for the rows and columns a query needs."""

Retokenise = Callable[[str, Sequence[Sequence[int]]], list[list[int]] | None]
"""Run, token lists -> the tokens of each list after decoding and re-encoding; None if the run has no tokenizer."""


class Database:
    """SQL views that are loaded when a query first names them. Use as a context manager, from a single thread."""

    def __init__(
        self,
        load: Load,
        explain_failure: Callable[[str], Exception] | None = None,
        decode: Decode = lambda run, tokens: None,
        retokenise: Retokenise = lambda run, texts: None,
        bounds: Runtime | None = None,
    ) -> None:
        """Open the database without loading any view.

        Args:
            load: Loads a view; called at most once per view.
            explain_failure: Maps DuckDB's message for data that could not be read to the error to raise.
            decode: Decodes tokens to text.
            retokenise: Decodes tokens and encodes the text again.
            bounds: Limits of time, memory and disk. None for those of the process environment.
        """
        self._bounds = bounds or Runtime.current()
        self._load = load
        self._decode = decode
        self.retokenise = retokenise
        self._explain_failure = explain_failure or (lambda message: QueryError(f"the data cannot be read: {message}"))
        self._spill = tempfile.TemporaryDirectory(prefix="ragen-sql-")
        self._connection = self._connect()
        self._grammar = self._connect()
        self._bound: set[str] = set()
        with TimeLeft(self._bounds.sql_timeout_s).spent_by(self._grammar):
            self._create_empty_tables()

    def _create_empty_tables(self) -> None:
        for name, schema in {**DATASET_VIEWS, **RECORD_VIEWS}.items():
            self._grammar.register("_empty", schema.empty_table())
            self._grammar.execute(f"create table {name} as {stored_view(name, '_empty')}").fetchall()
            self._grammar.unregister("_empty")
        for name, view in DERIVED_VIEWS.items():
            self._grammar.execute(f"create table {name} as {view.sql}").fetchall()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and delete the spill directory."""
        self._connection.close()
        self._grammar.close()
        self._spill.cleanup()

    def query(self, sql: str) -> pa.Table:
        """Return the full result of a query.

        Raises:
            QueryError: If the query is malformed, names something unknown, would write, or reaches beyond the views;
                the message is DuckDB's, with the position and similar names.
        """
        return self.stream(sql).read_all()

    def stream(self, sql: str) -> pa.RecordBatchReader:
        """Return the result of a query in batches; columns of the same name get the suffixes `_1`, `_2`, ...

        Raises:
            QueryError: As for `query`; also while batches are read.
        """
        time_left = TimeLeft(self._bounds.sql_timeout_s)
        views = self._views_of(sql, time_left)
        for name in views:
            self._bind(name)
        connection = self._connection if views else self._grammar  # has all views, for SHOW and the like
        try:
            with time_left.spent_by(connection):
                reader = connection.sql(sql).to_arrow_reader(BATCH_ROWS)
        except (duckdb.CatalogException, duckdb.BinderException) as error:
            # Planning over the empty tables has shown that the names are valid; unlike a table, a view is read-only.
            raise QueryError(f"{_text(error)}\n{_NOTHING_BUT_READING}") from error
        except duckdb.Error as error:
            raise self._failure(error) from error
        schema = pa.schema(
            [field.with_name(name) for field, name in zip(reader.schema, _unique(reader.schema.names), strict=True)]
        )
        return pa.RecordBatchReader.from_batches(schema, self._batches(connection, reader, schema, time_left))

    def _batches(
        self,
        connection: duckdb.DuckDBPyConnection,
        reader: pa.RecordBatchReader,
        schema: pa.Schema,
        time_left: TimeLeft,
    ) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                with time_left.spent_by(connection):
                    batch = reader.read_next_batch()
            except StopIteration:
                return
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise self._failure(error) from error
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def _views_of(self, sql: str, time_left: TimeLeft) -> set[str]:
        """Check that the text is a single read-only statement and return the views it reads."""
        try:
            statements = self._grammar.extract_statements(sql)
            if len(statements) != 1:
                contents = "no statement" if not statements else f"{len(statements)} statements"
                raise QueryError(f"expected one SELECT statement, found {contents}: {quoted(sql.strip())}")
            if statements[0].type not in _READING:
                kind = str(statements[0].type).rpartition(".")[2]
                hint = " (a PIVOT must name its values: PIVOT ... ON column IN (...))" if kind == "MULTI" else ""
                raise QueryError(f"refused: this is {kind}, not SELECT{hint}.\n{_NOTHING_BUT_READING}")
            query = _EXPLAIN.sub("", sql)
            (tree,) = self._grammar.execute("select json_serialize_sql(?)", [query]).fetchall()[0]
        except duckdb.Error as error:
            raise QueryError(_text(error)) from error
        if writing := _WRITING_NODE.search(tree):
            raise QueryError(f"refused: there is {writing[1]} inside this SELECT.\n{_NOTHING_BUT_READING}")
        with time_left.spent_by(self._grammar):
            self._check_names(sql, is_explained=query != sql)
        if any(mark in tree for mark in _HIDDEN_NAMES):
            return set(VIEW_NAMES)
        return {name.lower() for name in _TABLE_NAME.findall(tree)} & set(VIEW_NAMES)

    def _check_names(self, sql: str, *, is_explained: bool) -> None:
        """Plan the query over the empty tables, which reports errors and their position before any data is read."""
        try:
            self._grammar.execute(sql if is_explained else f"explain\n{sql}").fetchall()
        except duckdb.PermissionException as error:
            raise QueryError(f"refused: {_text(error)}\n{_NOTHING_BUT_READING}") from error
        except duckdb.Error as error:
            text = _text(error) if is_explained else _one_line_up(_text(error))
            raise QueryError(text + _new_name(text)) from error

    def _bind(self, name: str) -> None:
        if name in self._bound:
            return
        if name in DERIVED_VIEWS:
            sql = DERIVED_VIEWS[name].sql
            for source in DERIVED_VIEWS[name].sources:
                self._bind(source)
        else:
            self._connection.register(f"_{name}", self._load(name, Path(self._spill.name)))
            sql = stored_view(name, f"_{name}")
        self._connection.execute(f"create view {name} as {sql}").fetchall()
        self._bound.add(name)

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, duckdb.PermissionException):
            return QueryError(f"refused: {_text(error)}\n{_NOTHING_BUT_READING}")
        if isinstance(error, duckdb.OutOfMemoryException) or _OUT_OF_MEMORY in str(error):
            return QueryError(
                f"the query needs more than its limits of {self._bounds.sql_memory_gb:g} GB of memory and "
                f"{self._bounds.sql_spill_gb:g} GB of disk; select fewer columns, rows or "
                f"iterations, or set STARPO_SQL_MEMORY_GB and STARPO_SQL_SPILL_GB: {first_line(error)}"
            )
        is_of_query = isinstance(error, duckdb.Error) and "reading the stream" not in str(error)
        if is_of_query or _FUNCTION_FAILED in str(error):  # which may show only when rows are read
            return QueryError(_text(error))
        return self._explain_failure(_text(error))

    def _connect(self) -> duckdb.DuckDBPyConnection:
        limits = {
            "temp_directory": self._spill.name,
            "memory_limit": f"{self._bounds.sql_memory_gb} GB",
            "max_temp_directory_size": f"{self._bounds.sql_spill_gb} GB",
        }
        connection = duckdb.connect(":memory:", config={**_GUARDS, **limits})
        if connection.execute("select current_setting('enable_progress_bar')").fetchall() == [(True,)]:
            # it would be written into `--json`; where it is off, in a notebook without ipywidgets, it cannot be set
            connection.execute("set enable_progress_bar = false").fetchall()
        connection.execute("set lock_configuration = true").fetchall()
        connection.create_function(
            DECODED,
            _by_column(self._decode),
            ["varchar", duckdb.sqltype("INTEGER[]")],
            "varchar",
            type=ARROW,
            null_handling=SPECIAL,
        )
        return connection


def described_views() -> dict[str, pa.Schema]:
    """Return every view with its columns; the metadata `meaning` of each says what it means."""
    loaded = {**DATASET_VIEWS, **RECORD_VIEWS}
    stored = {name: stored_columns(name) for name in loaded}
    with Database(lambda view, _: loaded[view].empty_table()) as database:
        derived = {name: database.query(f"from {name}").schema for name in DERIVED_VIEWS}
    for name, view in DERIVED_VIEWS.items():
        known = {field.name: field.metadata for source in reversed(view.sources) for field in stored[source]}
        known |= {column: {"meaning": meaning} for column, meaning in view.meanings.items()}
        derived[name] = pa.schema([field.with_metadata(known[field.name]) for field in derived[name]])
    return {name: {**stored, **derived}[name] for name in VIEW_NAMES}


def _by_column(decode: Decode) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Vectorise `decode` over columns. The closure must not reference the database, which could then never be freed."""

    def decoded(runs: pa.Array, tokens: pa.Array) -> pa.Array:
        pairs = zip(runs.to_pylist(), tokens.to_pylist(), strict=True)
        return pa.array([None if run is None or ids is None else decode(run, ids) for run, ids in pairs], pa.string())

    return decoded


def _text(error: Exception) -> str:
    return str(error).strip()


def _new_name(text: str) -> str:
    """Return a line that says how the views name a stored column, if a message says that it is missing; else ""."""
    missing = _MISSING_COLUMN.search(text)
    name = missing[1].lower() if missing else ""
    return f"\nThe views have {RENAMED[name]} in place of the stored column {name}." if name in RENAMED else ""


def _one_line_up(text: str) -> str:
    return re.sub(r"^LINE (\d+):", lambda match: f"LINE {int(match[1]) - 1}:".ljust(len(match[0])), text, flags=re.M)


def _unique(names: list[str]) -> list[str]:
    taken: dict[str, None] = {}
    for name in names:
        number, candidate = 0, name
        while candidate in taken or (number and candidate in names):
            number += 1
            candidate = f"{name}_{number}"
        taken[candidate] = None
    return list(taken)
