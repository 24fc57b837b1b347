"""The commands `sql`, `audit` and `lineage` as a user types them."""

import csv
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.flows.cli.lineage import draw_lineage
from starpo.flows.console.terminal import Console
from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.finding import Finding, shown_rows
from starpo.ragen.evidence.audit.lineage import Lineage, LineageStep
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.flows import command as in_process

KINDS = ("turns", "rewards", "selection", "samples", "metrics")
Ragen = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a store with a run of two iterations that consist of the datasets' examples."""
    folder = tmp_path_factory.mktemp("original")
    store = Store(str(folder))
    store.runs.create("mine", flow="starpo", preset="smoke", config={"filter": {"keep": 0.5}})
    for iteration in range(2):
        inputs: dict[str, str] = {}
        for kind in KINDS:
            stage, settings = Stage(name=f"make-{kind}", version=1), {"iteration": iteration}
            key = stage_key(stage, settings, inputs, 0)
            store.put_table(kind, example(kind), Facts(key=key, stage=stage, settings=settings, inputs=inputs, seed=0))
            store.runs.record_stage("mine", iteration, stage.name, {kind: key})
            inputs = {kind: key}
    return folder


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


@pytest.fixture
def ragen(store: Path) -> Ragen:
    """`ragen(*arguments) -> exit code, stdout, stderr`, in this process."""

    def run(*arguments: str) -> tuple[int, str, str]:
        done = in_process.ragen(*arguments, STARPO_STORE=str(store), COLUMNS="200")
        return done.returncode, done.stdout, done.stderr

    return run


def refused(result: tuple[int, str, str], expected: int = 1) -> str:
    code, out, err = result
    assert code == expected, out + err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err


class TestSql:
    def test_a_table(self, ragen: Ragen) -> None:
        code, out, _ = ragen("sql", "mine", "select iteration, count(*) as n from turns group by all order by all")
        assert code == 0
        assert [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()] == [["0", "40"], ["1", "40"]]

    def test_long_answers_cut_for_people_only(self, ragen: Ragen) -> None:
        _, out, _ = ragen("sql", "mine", "select range as n from range(250)")
        assert "the first 100 rows" in out
        _, out, _ = ragen("sql", "mine", "select range as n from range(250)", "--json")
        assert len(json.loads(out)) == 250

    def test_json(self, ragen: Ragen) -> None:
        query = "select sum(turn) as total, 'nan'::double as none, [1] as l, timestamp '2026-01-01' as t from turns"
        _, out, _ = ragen("sql", "mine", query, "--json")
        assert json.loads(out) == [{"total": 160, "none": None, "l": [1], "t": "2026-01-01T00:00:00"}]
        _, out, _ = ragen("sql", "mine", "from turns where false", "--json")
        assert json.loads(out) == []

    def test_csv_and_parquet(self, ragen: Ragen, tmp_path: Path) -> None:
        query = "select iteration, executed_actions, kl_reference from turns join samples "
        query += "using (run, iteration, group_id) order by iteration"
        table, sheet = tmp_path / "a.parquet", tmp_path / "a.csv"
        assert ragen("sql", "mine", query, "--parquet", str(table))[0] == 0
        assert ragen("sql", "mine", query, "--csv", str(sheet))[0] == 0
        rows = list(csv.DictReader(sheet.open(newline="")))
        stored = pq.read_table(table).to_pylist()
        assert len(rows) == len(stored) == 80
        assert rows[0] == {"iteration": "0", "executed_actions": '["Up", "Left"]', "kl_reference": ""}
        assert stored[0] == {"iteration": 0, "executed_actions": ["Up", "Left"], "kl_reference": None}

    def test_views_are_listed_with_meanings(self, ragen: Ragen) -> None:
        code, out, _ = ragen("sql", "--views")
        assert code == 0
        assert "actions that were executed" in out
        assert "trajectories" in out

    def test_two_forms_of_answer(self, ragen: Ragen) -> None:
        assert "give only one of --json" in refused(ragen("sql", "mine", "select 1", "--json", "--csv", "x.csv"))

    def test_a_file_that_cannot_be_written(self, ragen: Ragen, tmp_path: Path) -> None:
        message = refused(ragen("sql", "mine", "select 1 as a", "--csv", str(tmp_path / "no" / "a.csv")))
        assert "cannot write" in message

    def test_failing_query_keeps_the_file(self, ragen: Ragen, tmp_path: Path) -> None:
        file = tmp_path / "a.csv"
        file.write_text("precious")
        refused(ragen("sql", "mine", "select think::integer from turns", "--csv", str(file)))
        assert file.read_text() == "precious"
        assert list(tmp_path.glob(".a.csv*")) == []


class TestAudit:
    @pytest.mark.parametrize("options", [("--list", "--json"), ("--json", "--list")])
    def test_the_list_as_json(self, ragen: Ragen, options: tuple[str, ...]) -> None:
        code, out, _ = ragen("audit", *options)
        assert code == 0
        assert [row["audit"] for row in json.loads(out)] == list(AUDITS)
        assert all(row["about"] for row in json.loads(out))

    def test_chosen_audits_as_text_and_json(self, ragen: Ragen) -> None:
        code, out, _ = ragen("audit", "mine", "formats", "errors")
        assert code == 0
        assert out.startswith("the stored data are consistent\n"), "the verdict comes first"
        assert "Invalid formats" in out
        assert "No turn ended in an error." in out
        assert "Rewards" not in out
        code, out, _ = ragen("audit", "mine", "formats", "--json")
        (finding,) = json.loads(out)
        assert (code, finding["audit"], finding["severity"]) == (0, "formats", "note")
        assert [row["iteration"] for row in finding["rows"]] == [0, 1]

    def test_a_fault_is_exit_code_1(self, ragen: Ragen, store: Path) -> None:
        samples = example("samples")
        dropped = pa.array(["group-00000000"] * samples.num_rows)
        work: dict[str, Any] = {"settings": {"iteration": 2}, "inputs": {}, "seed": 0}
        stage = Stage(name="make-samples", version=1)
        trained_on = samples.set_column(1, samples.schema.field("group_id"), dropped)
        Store(str(store)).put_table("samples", trained_on, Facts(key="trained-on-dropped", stage=stage, **work))
        Store(str(store)).runs.record_stage("mine", 0, stage.name, {"samples": "trained-on-dropped"})
        code, out, _ = ragen("audit", "mine", "groups", "--json")
        (finding,) = json.loads(out)
        assert (code, finding["severity"]) == (1, "fault")
        _, out, _ = ragen("audit", "mine", "formats", "groups")
        assert out.startswith("the stored data are inconsistent (groups)\n")
        assert out.index("(groups)") < out.index("(formats)"), "faults come before notes"

    def test_long_texts_exclude_the_run_name(self, ragen: Ragen, monkeypatch: pytest.MonkeyPatch) -> None:
        table = pa.table({"run": ["a-run-with-a-name-of-a-grid"] * 2, "iteration": [0, 1], "example": ["x" * 40, None]})
        finding = Finding("Found", "note", "Something.", "It says so.", table, is_over_time=True)
        monkeypatch.setattr("starpo.flows.cli.audit.run_audits", lambda *_: [("errors", finding)])
        _, out, _ = ragen("audit", "mine", "errors")
        lines = [line for line in out.splitlines() if " of iteration " in line]
        assert lines == [f"example of iteration 0: {'x' * 40}"]

    def test_long_run_rows_spread_over_time(self) -> None:
        table = pa.table({"run": ["r"] * 60, "iteration": [i // 3 for i in range(60)]})
        over_time = Finding("t", "note", "s", "m", table, is_over_time=True)
        assert [row["iteration"] for row in shown_rows(over_time, 9)] == [0, 0, 0, 10, 10, 10, 19, 19, 19]
        assert [row["iteration"] for row in shown_rows(over_time, 5)] == [19, 19, 19]
        assert [row["iteration"] for row in shown_rows(over_time, 1)] == [19]
        cases = Finding("t", "note", "s", "m", table, is_over_time=False)
        assert [row["iteration"] for row in shown_rows(cases, 4)] == [0, 0, 0, 1]

    @pytest.mark.parametrize("sizes", [[1, 9], [9, 1], [5, 1, 1, 1, 8, 1, 2], [1] * 11 + [3], [40]])
    def test_rows_shown_limited_as_asked(self, sizes: list[int]) -> None:
        iterations = [number for number, size in enumerate(sizes) for _ in range(size)]
        table = pa.table({"run": ["r"] * len(iterations), "iteration": iterations})
        finding = Finding("t", "note", "s", "m", table, is_over_time=True)
        for limit in range(1, len(iterations) + 1):
            shown = [row["iteration"] for row in shown_rows(finding, limit)]
            assert 1 <= len(shown) <= limit
            assert shown[-1] == len(sizes) - 1
            assert all(shown.count(number) == sizes[number] for number in set(shown)) or len(set(shown)) == 1


DISTANCES = {"root": 0, "first": -1, "middle": -1, "last": -1, "source": -2}
EDGES = tuple(
    (source, "input", key)
    for source, key in [
        ("first", "root"), ("middle", "root"), ("last", "root"),
        ("middle", "first"), ("source", "first"), ("first", "last"),
    ]
)  # fmt: skip


class TestLineage:
    def test_a_tree(self, ragen: Ragen) -> None:
        code, out, _ = ragen("lineage", "mine:0:make-rewards")
        assert code == 0
        made, led = out.index("made from"), out.index("led to")
        assert made < out.index("turns: make-turns") < led < out.index("make-samples")
        assert "mine:0:make-selection" in out

    def test_repeated_work_refers_to_first_node(self) -> None:
        works = {key: LineageStep(key, key, ("metrics",), (), {}, (), distance) for key, distance in DISTANCES.items()}
        graph = Lineage(works["root"], works, EDGES, (), ())
        console = Console(width=120)
        with console.capture() as captured:
            console.print(draw_lineage(graph, 0))
        lines = [line.strip(" │├└─") for line in captured.get().splitlines()]
        shown = [(line.split()[1], line.partition("(see ")[2].rstrip(")")) for line in lines if ": " in line]
        assert shown == [
            ("first", ""), ("middle", "there"), ("source", ""), ("middle", ""), ("last", ""), ("first", "there"),
        ]  # fmt: skip

    def test_chain_of_any_length_is_drawn(self) -> None:
        keys = ["root", *(f"w{number}" for number in range(1, 3000))]
        works = {key: LineageStep(key, key, ("metrics",), (), {}, (), -number) for number, key in enumerate(keys)}
        edges = tuple((older, "checkpoint", key) for key, older in itertools.pairwise(keys))
        tree = draw_lineage(Lineage(works["root"], works, edges, (), ()), 0)
        assert str(tree.children[0].children[0].label).startswith("checkpoint: w1 ")

    def test_far_works_are_counted(self, ragen: Ragen) -> None:
        _, out, _ = ragen("lineage", "mine:0:make-metrics", "--depth", "1")
        assert "and 3 more, up to make-turns" in out
        _, out, _ = ragen("lineage", "mine:0:make-metrics", "--depth", "0")
        assert "turns: make-turns" in out
        assert "more, up to" not in out

    def test_json_is_complete(self, ragen: Ragen) -> None:
        _, out, _ = ragen("lineage", "mine:1:make-turns", "--json", "--depth", "0")
        graph = json.loads(out)
        assert [work["distance"] for work in graph["works"]] == [0, 1, 2, 3, 4]
        assert len(graph["edges"]) == 4

    def test_a_gap_in_the_chain(self, ragen: Ragen, store: Path) -> None:
        key = Store(str(store)).runs.iteration("mine", 0)["make-turns"]["turns"]
        shutil.rmtree(store / "turns" / key)
        code, out, err = ragen("lineage", "mine:0:make-rewards")
        assert code == 1
        assert f"{key[:10]} is not in the store" in out
        assert f"missing: {key}" in err
