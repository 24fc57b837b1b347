"""Every query of docs/audit.md is run over the datasets' examples, so that none becomes outdated."""

import re
from pathlib import Path

import pytest

from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.views import DATASET_VIEWS, RECORD_VIEWS, VIEW_NAMES
from tests.examples import example

DOCUMENT = Path(__file__).parents[2] / "docs" / "audit.md"
QUERIES = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def database() -> Database:
    """Database with one iteration of the datasets' examples."""
    import pyarrow as pa

    def load(view: str, _: Path) -> pa.Table:
        if view == "runs":
            row = {"run": "r", "config": '{"filter": {"keep": 0.5}}', "status": "completed"}
            return pa.Table.from_pylist([row], schema=RECORD_VIEWS["runs"])
        if view == "artifacts":
            row = {"run": "r", "iteration": 0, "stage": "update", "kind": "samples", "artifact": "a",
                   "is_reused": False, "size_bytes": 10, "seconds": 1.5}  # fmt: skip
            rows = [row, row | {"kind": "checkpoint", "seconds": 1.25}]
            return pa.Table.from_pylist(rows, schema=RECORD_VIEWS["artifacts"])
        table, schema = example(view), DATASET_VIEWS[view]
        facts = {"run": "r", "iteration": 0, "artifact": "a", "is_reused": False}
        rows = [{**row, **facts} for row in table.to_pylist()]
        return pa.Table.from_pylist(rows, schema=schema)

    return Database(load)


def test_guide_has_queries() -> None:
    assert len(QUERIES) >= 8


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.partition("\n")[0][:60])
def test_a_query_of_the_guide_runs(database: Database, query: str) -> None:
    answer = database.query(query)
    assert answer.num_columns >= 2
    assert answer.num_rows or "having" in query


def test_work_with_several_artifacts_timed_once(database: Database) -> None:
    [query] = [query for query in QUERIES if "as seconds" in query]
    assert database.query(query).to_pylist() == [{"stage": "update", "times": 1, "seconds": 1.5}]


def test_guide_names_every_view_and_audit() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in VIEW_NAMES if f"`{name}`" not in text] == []
    assert re.findall(r"`(\w+)`", re.findall(r"standard questions: (.*?) \(", text)[0]) == list(AUDITS)
