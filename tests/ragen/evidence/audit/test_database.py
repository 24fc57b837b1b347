"""SQL can read the views and nothing else, and errors state clearly what is wrong with a query."""

import threading
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from starpo.ragen.core.errors import QueryError
from starpo.ragen.evidence.audit.database import Database, described_views
from starpo.ragen.evidence.audit.views import DATASET_VIEWS, RECORD_VIEWS, VIEW_NAMES

from .conftest import Ask, played_turns

WRITES = [
    "create table x as select 1",
    "create view x as select 1",
    "insert into turns from turns",
    "update turns set turn = 0",
    "delete from turns",
    "drop view turns",
    "alter view turns rename to x",
    "with x as (insert into turns from turns returning turn) from x",
    "with x as (delete from turns returning turn) from x",
    "explain analyze insert into turns from turns",
    "attach 'x.db'",
    "set threads = 1",
    "set enable_external_access = true",
    "reset enable_external_access",
    "install httpfs",
    "load httpfs",
    "call pragma_version()",
    "pragma database_size",
    "checkpoint",
    "begin",
    "pivot turns on status using count(*)",
]
REACHES = [
    "copy (select 1) to '{file}'",
    "with x as (copy (select 1) to '{file}') from x",
    "explain analyze copy (select 1) to '{file}'",
    "export database '{file}'",
    "from read_text('{existing}')",
    "from read_csv('{existing}')",
    "from read_parquet('{existing}')",
    "from glob('{existing}')",
    "from '{existing}'",
    "select 1 from sniff_csv('{existing}')",
    "from query('from read_text(''{existing}'')')",
]


@pytest.mark.ci
@pytest.mark.parametrize("sql", WRITES)
def test_writing_statement_is_refused(tables: Ask, sql: str) -> None:
    database = tables(turns=played_turns())
    before = database.query("select count(*) from turns")
    with pytest.raises(QueryError, match="SQL is read-only"):
        database.query(sql)
    assert database.query("select count(*) from turns") == before


@pytest.mark.parametrize("sql", REACHES)
def test_files_are_out_of_reach(tables: Ask, tmp_path: Path, sql: str) -> None:
    existing, file = tmp_path / "existing.csv", tmp_path / "written"
    existing.write_text("secret\n1\n")
    with pytest.raises(QueryError, match=r"^refused: ") as refusal:
        tables().query(sql.format(file=file, existing=existing))
    assert "secret" not in str(refusal.value)
    assert not file.exists()


def test_python_variables_out_of_reach(tables: Ask) -> None:
    secret = pa.table({"x": [1]})
    assert secret.num_rows
    with pytest.raises(QueryError, match="secret"):
        tables().query("from secret")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", r"syntax error at or near \"selec\"(.|\n)*LINE 1: selec 1\n +\^"),
        ("select\n turn,\n rewrd from turns", r"\"rewrd\" not found(.|\n)*LINE 3: +rewrd from turns\n +\^"),
        ("select trajectory from turns", r"Candidate bindings: .*\"trajectory_id\""),
        ("from turn", r"Did you mean \"turns\""),
        ("select lenght(think) from turns", r"Did you mean \"length\""),
        ("select cast(think as integer) from turns", "Could not convert string"),
        ("select 1; select 2", "found 2 statements"),
        ("", "found no statement"),
        ("-- nothing", "found no statement"),
    ],
)
def test_error_names_fault_and_place(tables: Ask, sql: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        tables(turns=played_turns()).query(sql)


def test_no_progress_bar_between_rows(tables: Ask) -> None:
    assert tables().query("select current_setting('enable_progress_bar') as shown")["shown"].to_pylist() == [False]


def test_errors_precede_any_loading() -> None:
    def load(view: str, _: Path) -> pa.Table:
        raise AssertionError(f"{view} was loaded")

    with Database(load) as database, pytest.raises(QueryError, match="rewrd"):
        database.query("select rewrd from turns join rewards using (run)")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("sql", "loaded"),
    [
        ("select 1", set()),
        ("from TURNS", {"turns"}),
        ('from "turns"', {"turns"}),
        ("select 'from rewards' from turns", {"turns"}),
        ("from turns a anti join rewards b using (run, iteration)", {"turns", "rewards"}),
        ("with x as (from metrics) from x where exists (from episodes)", {"metrics", "episodes"}),
        ("from trajectories", {"turns", "rewards", "selection", "samples"}),
        ("explain select turn from turns", {"turns"}),
        ("describe turns", {"turns"}),
        ("from query('select turn from turns')", {*DATASET_VIEWS, *RECORD_VIEWS}),
        ("pivot turns on status in ('ok') using count(*)", {"turns"}),
    ],
)
def test_only_queried_views_are_loaded(sql: str, loaded: set[str]) -> None:
    views: list[str] = []

    def load(view: str, _: Path) -> pa.Table:
        views.append(view)
        return {**DATASET_VIEWS, **RECORD_VIEWS}[view].empty_table()

    with Database(load) as database:
        database.query(sql)
        database.query(sql)
    assert sorted(views) == sorted(loaded)


def test_equal_column_names_are_distinguished(tables: Ask) -> None:
    answer = tables().query("select 1 as a, 2 as a, 3 as a_1, 4 as a")
    assert answer.schema.names == ["a", "a_2", "a_1", "a_3"]
    assert answer.to_pylist() == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]


def test_reading_failure_explained_by_caller() -> None:
    def batches() -> pa.RecordBatchReader:
        def broken() -> object:
            raise OSError("the disk is on fire")
            yield

        return pa.RecordBatchReader.from_batches(DATASET_VIEWS["turns"], broken())

    with (
        Database(lambda *_: batches(), lambda message: QueryError(f"explained: {message}")) as database,
        pytest.raises(QueryError, match=r"explained: .*the disk is on fire"),
    ):
        database.query("from turns")


def test_no_thread_holds_connection_afterwards() -> None:
    """One that did so as Python ends would have nanobind report leaks."""
    with Database(lambda view, _: {**DATASET_VIEWS, **RECORD_VIEWS}[view].empty_table()) as database:
        for _ in range(5):
            database.query("from turns")
            assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_ctrl_c_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(lambda *_: None) as database:
        monkeypatch.setattr(
            database, "_grammar", Mock(wraps=database._grammar, sql=Mock(side_effect=RuntimeError("Query interrupted")))
        )
        with pytest.raises(KeyboardInterrupt):
            database.query("select 1")


def test_played_data_named_alike_in_views() -> None:
    views = described_views()
    assert {name for name, schema in views.items() if "environment" in schema.names} == {
        "turns", "trajectories", "selection", "episodes", "episode_turns", "panels"
    }  # fmt: skip
    assert {name for name, schema in views.items() if "panel" in schema.names} == {"episodes", "panels"}
    assert not [name for name, schema in views.items() if {"env", "cell", "digest"} & set(schema.names)]
    rows = [{"cell": cell, "env": "frozen_lake"} for cell in ("larger", "larger/seen")]
    episodes = pa.Table.from_pylist(rows, schema=DATASET_VIEWS["episodes"])
    with Database(lambda view, _: episodes) as database:
        answer = database.query("from episodes")
        assert answer.schema.names == views["episodes"].names
        assert answer.select(["panel", "is_seen", "environment"]).to_pylist() == [
            {"panel": "larger", "is_seen": is_seen, "environment": "frozen_lake"} for is_seen in (False, True)
        ]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("select env from turns", "The views have environment in place of the stored column env."),
        ("select t.ENV from turns t", "The views have environment in place of the stored column env."),
        ("from turns join selection using (env)", "The views have environment in place of the stored column env."),
        ("select cell from episodes", "The views have panel and is_seen in place of the stored column cell."),
    ],
)
def test_stored_column_name_gets_hint(tables: Ask, sql: str, hint: str) -> None:
    with pytest.raises(QueryError) as raised:
        tables().query(sql)
    assert str(raised.value).endswith(f"\n{hint}")


def test_other_missing_column_has_no_hint(tables: Ask) -> None:
    with pytest.raises(QueryError) as raised:
        tables().query("select envi from turns")
    assert "The views have" not in str(raised.value)


def test_every_view_column_has_meaning() -> None:
    views = described_views()
    assert tuple(views) == VIEW_NAMES
    assert [
        (view, field.name)
        for view, schema in views.items()
        for field in schema
        if not (field.metadata or {}).get(b"meaning")
    ] == []
    assert b"null: imported without tokens" in views["trajectories"].field("num_response_tokens").metadata[b"meaning"]
    assert views["trajectories"].field("env_seed").metadata == DATASET_VIEWS["turns"].field("env_seed").metadata
