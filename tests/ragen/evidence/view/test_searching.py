"""Search: each facet, the condition in SQL and what it must not do, and the commands that find the same."""

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from starpo.ragen.core.errors import QueryError
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.evidence.exchange.choosing import parse_choice, parse_iterations
from starpo.ragen.evidence.exchange.exporting import export_run
from starpo.ragen.evidence.exchange.played import Recorded
from starpo.ragen.evidence.view import conditions
from starpo.ragen.evidence.view.conditions import trajectories_where
from starpo.ragen.evidence.view.query import Query, as_sql
from starpo.ragen.store import Store
from tests.ragen.evidence.view.test_app import RUN, client_of, hits_of

EVERYTHING = 24  # 4 iterations of 3 groups of 2
QUERIES = [
    {"text": "LEFT"},
    {"text": 'quotes\' "double"'},
    {"text": "no such text"},
    {"success": True},
    {"success": False, "kept": True},
    {"status": "format_error"},
    {"first": 1, "last": 2, "low": -0.45, "high": 0.2},
    {"least_turns": 2, "most_turns": 2},
    {"component": "environment"},
    {"component": "format", "component_high": -0.05},
    {"component": "no'such"},
    {"where": "num_actions > 4 or advantage > 0 -- and no more", "last": 2},
    {"where": "exists (select 1 from turns where turns.trajectory_id = trajectories.trajectory_id and turn = 1)"},
    {"text": "up", "component": "environment", "component_low": -0.3, "where": "num_turns = 3", "kept": True},
]
REFUSED = [
    ("read_text('/etc/passwd') is not null", "table function"),
    ("exists (from read_text('/etc/passwd'))", "refused: Permission Error"),
    ("exists (from read_csv('/etc/passwd'))", "refused: Permission Error"),
    ("exists (from '/etc/passwd')", "does not exist|refused"),
    ("exists (from glob('/etc/*'))", "refused: Permission Error"),
    ("exists (from query('from read_text(''/etc/passwd'')'))", "refused: Permission Error"),
    ("getenv('HOME') is not null", "getenv does not exist"),
    ("1=1; copy turns to '{folder}/written'", "syntax error"),
    ("1=1); copy turns to '{folder}/written'; select (1=1", "expected one SELECT|syntax error"),
    ("1=1) --", "syntax error"),
    ("1=1 /*", "unterminated"),
    ("exists (with x as (copy (select 1) to '{folder}/written') from x)", "refused|syntax error"),
    ("1=1; attach '{folder}/written'", "syntax error"),
    ("1=1; pragma database_size", "syntax error"),
    ("1=1; set enable_external_access = true", "syntax error"),
    ("no_such_column", "no_such_column"),
    ("1=1) union all select i, 'x', true, 0.0, true from range(2000000) r(i) where (1=1", "more than 1,000,000"),
]
EXCESSIVE = [
    "exists (with recursive r as (select 1 as x union all select x + 1 from r) select 1 from r where x < 0)",
    "len(range(400000000)) > 0",
    "len(repeat('x', 4000000000)) > 0",
]


@pytest.fixture
def answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate conditions in this process: one of their own takes more than a second to begin."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 0, json.dumps(conditions.answer(*command[-3:])))

    monkeypatch.setattr(conditions.subprocess, "run", run)


@pytest.mark.usefixtures("answered_here")
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_commands_find_the_same(store: Store, query: dict[str, object]) -> None:
    answer = hits_of(client_of(store), **query)
    first, *exports = answer["commands"]
    assert first[:3] == ["starpo", "sql", "hostile"]
    assert first[4:] == ["--store", store.url]
    with open_database(store, ["hostile"]) as database:
        rows = database.query(first[3]).to_pylist()
    shown = [
        (row["iteration"], row["trajectory_id"], row["success"], row["trajectory_return"], row.get("turn"))
        for row in rows
    ]
    hits = [
        (hit["iteration"], hit["trajectory"], hit["success"], hit["return"], hit.get("turn")) for hit in answer["hits"]
    ]
    assert sorted(hits) == sorted(shown)
    assert len(hits) == answer["num_hits"]
    if "component" in query:
        sums = {(row["iteration"], row["trajectory_id"]): row["component"] for row in rows}
        for hit in answer["hits"]:
            assert hit["component"] == pytest.approx(sums[hit["iteration"], hit["trajectory"]])
    for export in exports:
        assert export[:5] == ["starpo", "export", "hostile", "--format", "messages"]


def test_queries_are_no_trifles(store: Store) -> None:
    """Most of those whose commands are compared find some, and none finds all."""
    numbers = [hits_of(client_of(store), **query)["num_hits"] for query in QUERIES if "where" not in query]
    assert sum(0 < number < EVERYTHING for number in numbers) >= 6


def test_export_command_writes_the_hits(store: Store, tmp_path: Path) -> None:
    answer = hits_of(client_of(store), kept=True, low=-10, first=1)
    words = answer["commands"][1]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options["--iterations"] == "1-3"
    conditions = [value for name, value in zip(words[3::2], words[4::2], strict=True) if name == "--where"]
    assert conditions == ["kept", "return>=-10.0"]
    recorded = Recorded(store, "hostile", parse_iterations(options["--iterations"]), None)
    done = export_run(recorded, options["--format"], tmp_path / "hits", parse_choice(conditions))
    assert done.num_chosen == answer["num_hits"] > 0


@pytest.mark.usefixtures("answered_here")
@pytest.mark.parametrize("query", [{"success": False}, {"text": "x"}, {"where": "true"}, {"kept": True, "first": 9}])
def test_export_is_offered_where_it_can(store: Store, query: dict[str, object]) -> None:
    assert len(hits_of(client_of(store), **query)["commands"]) == 1


def test_any_hit_can_be_asked_for(store: Store) -> None:
    client = client_of(store)
    everything = hits_of(client)
    assert everything["num_hits"] == len(everything["hits"]) == EVERYTHING
    for place in (0, 7, EVERYTHING - 1):
        part = hits_of(client, offset=place, limit=1)
        assert (part["hits"], part["num_hits"]) == ([everything["hits"][place]], EVERYTHING)


@pytest.mark.parametrize(
    ("field", "value"),
    [("limit", 0), ("limit", 10**6), ("offset", -1), ("low", "nan"), ("text", "\0"), ("where", "x" * 2001), ("a", "b")],
)
def test_impossible_query_is_refused(store: Store, field: str, value: object) -> None:
    answer = client_of(store).get(f"{RUN}/search", params={field: value})
    assert (answer.status_code, answer.text.partition(":")[0]) == (400, field)


@pytest.mark.parametrize(("condition", "words"), REFUSED)
def test_condition_only_reads_views(store: Store, tmp_path: Path, condition: str, words: str) -> None:
    sql = as_sql(Query(where=condition.format(folder=tmp_path)))
    result = conditions.answer(store.url, "hostile", sql)
    assert re.search(words, str(result["fault"]))
    assert "root:" not in str(result)
    assert not (tmp_path / "written").exists()


def test_wrong_condition_is_a_bad_request(store: Store) -> None:
    answer = client_of(store).get(f"{RUN}/search", params={"where": "lenght(status) > 1"})
    assert answer.status_code == 400
    assert 'Did you mean "length"' in answer.text


@pytest.mark.ci
@pytest.mark.parametrize("condition", EXCESSIVE)
def test_condition_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    monkeypatch.setenv("STARPO_SQL_TIMEOUT_S", "3600")
    monkeypatch.setenv("STARPO_SQL_MEMORY_GB", "64")
    with pytest.raises(QueryError, match="more than 10 s or too much memory"):
        trajectories_where(store, "hostile", as_sql(Query(where=condition)))


def test_conditions_are_evaluated_singly(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "_WAIT_S", 0)
    busy = threading.Lock()
    busy.acquire()
    monkeypatch.setattr(conditions, "_evaluating", busy)
    answer = client_of(store).get(f"{RUN}/search", params={"where": "true"})
    assert answer.status_code == 400
    assert "another condition in SQL is being evaluated" in answer.text


def test_condition_names_damaged_data(store: Store) -> None:
    key = store.runs.iteration("hostile", 1)["rollout"]["turns"]
    store.parts("turns", key)[0].write_bytes(b"no Parquet")
    answer = client_of(store).get(f"{RUN}/search", params={"where": "success"})
    assert answer.status_code == 400
    assert f"turns/{key}" in answer.text
    assert json.dumps(hits_of(client_of(store))["unread"]) == "[1]"
