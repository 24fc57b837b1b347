"""Views over a store: what they contain, how much of the store they read, and how they report damage."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, QueryError, StoreError
from starpo.ragen.evidence.audit import stored
from starpo.ragen.evidence.audit.named import matching_runs, named_artifacts
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.store.remote.bucket import Bucket
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Manifest, Stage
from tests.examples import example_turns, put_folder

from .conftest import fill

JOINED = """
select iteration, avg(total) as mean_reward, avg((not format_ok)::integer) as invalid
from turns join rewards using (run, iteration, trajectory_id, turn) group by iteration order by iteration
"""


@pytest.fixture
def copied(filled_folder: Path, tmp_path: Path) -> Path:
    """Copy of the store that a test may damage."""
    return Path(shutil.copytree(filled_folder, tmp_path / "store"))


def parquet(folder: Path, kind: str) -> Path:
    return sorted(folder.glob(f"{kind}/*/*.parquet"))[0]


def test_views_equal_stored_tables(filled: Store) -> None:
    stages = filled.runs.iterations("mine")
    with open_database(filled, ["mine"]) as database:
        for kind in ("turns", "rewards", "selection", "samples", "metrics"):
            names = {"environment" if name == "env" else name: name for name in DATASETS[kind].schema.names}
            view = database.query(f"from {kind} select {', '.join(names)} where iteration = 2")
            view = view.rename_columns(names)
            keys = {key for by_kind in stages[2].values() for k, key in by_kind.items() if k == kind}
            assert view.to_pylist() == filled.read_table(kind, *keys).to_pylist()


@pytest.mark.ci
def test_many_file_views_are_read_once(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each audit queries the same views: a file that is opened by each of them costs ten times as much."""
    monkeypatch.setattr(stored, "MAX_FILES", 1)
    opened: list[str] = []
    open_file = pq.ParquetFile
    monkeypatch.setattr(stored.pq, "ParquetFile", lambda file: opened.append(str(file)) or open_file(file))
    with open_database(filled, ["mine"]) as direct, open_database(filled, ["mine"], has_many_queries=True) as copies:
        for view in ("turns", "rewards", "selection", "samples", "metrics", "turns"):
            sql = f"from {view} order by all"
            assert copies.query(sql) == direct.query(sql)
    assert len(opened) == len({*opened}) + 3  # the reused rollout, rewards and selection, which are there twice


def test_damaged_file_among_many_named(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_FILES", 1)
    file = parquet(copied, "rewards")
    file.write_bytes(b"\0" * file.stat().st_size)
    with (
        open_database(Store(str(copied)), ["mine"], has_many_queries=True) as database,
        pytest.raises(ArtifactDamagedError, match=f"rewards/{file.parent.name}"),
    ):
        database.query("select count(*) from rewards")


def test_reused_rollout_is_in_every_iteration(filled: Store) -> None:
    with open_database(filled, ["mine"]) as database:
        counted = database.query("select iteration, is_reused, count(*) as n from turns group by all order by all")
        played = database.query("select count(*) as n from turns where not is_reused")["n"][0].as_py()
        artifacts = database.query("select count(distinct artifact) as n from turns")["n"][0].as_py()
        joined = database.query("select iteration from samples join turns using (run, iteration, trajectory_id)")
    assert [(row["iteration"], row["is_reused"]) for row in counted.to_pylist()] == [(0, False), (1, True), (2, False)]
    counts = counted["n"].to_pylist()
    assert counts[0] == counts[1]
    assert played == counts[0] + counts[2]
    assert artifacts == 2
    assert set(joined["iteration"].to_pylist()) == {0, 1, 2}


def test_artifact_of_two_stages_counted_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    fill(store, num_iterations=1)
    keys = store.runs.iteration("mine", 0)["rollout"]
    store.runs.record_stage("mine", 0, "rollout_again", keys)
    assert [a.stage for a in named_artifacts(store, "mine") if a.kind == "turns"] == ["rollout"]


def test_trajectories_join_all_stages(filled: Store) -> None:
    keys = filled.runs.iteration("mine", 2)
    turns = filled.read_table("turns", keys["rollout"]["turns"]).to_pylist()
    rewards = filled.read_table("rewards", keys["reward"]["rewards"]).to_pylist()
    selection = {
        row["group_id"]: row for row in filled.read_table("selection", keys["variance_filter"]["selection"]).to_pylist()
    }
    with open_database(filled, ["mine"]) as database:
        rows = database.query("from trajectories where iteration = 2 order by trajectory_id").to_pylist()
    assert [row["trajectory_id"] for row in rows] == sorted({row["trajectory_id"] for row in turns})
    for row in rows:
        played = [turn for turn in turns if turn["trajectory_id"] == row["trajectory_id"]]
        assert row["num_turns"] == len(played)
        assert row["num_actions"] == sum(len(turn["executed_actions"]) for turn in played)
        assert row["num_effective_actions"] == sum(sum(turn["action_effective"]) for turn in played)
        assert row["num_response_tokens"] == sum(len(turn["response_ids"]) for turn in played)
        assert row["success"] == any(turn["success"] for turn in played)
        assert row["status"] == "ok"
        paid = next(reward for reward in rewards if reward["trajectory_id"] == row["trajectory_id"])
        assert row["trajectory_return"] == paid["trajectory_return"]
        assert row["kept"] == selection[row["group_id"]]["kept"]
        assert (row["advantage"] is not None) == row["kept"]


def test_runs_and_artifacts_are_views_too(filled: Store) -> None:
    with open_database(filled, ["mine"]) as database:
        run = database.query("select run, status, config->>'$.filter.keep' as keep from runs").to_pylist()
        stored = database.query("select iteration, stage, kind, is_reused, num_rows from artifacts").to_pylist()
    assert run == [{"run": "mine", "status": "completed", "keep": "0.5"}]
    assert len(stored) == 15
    reused = [(row["iteration"], row["kind"]) for row in stored if row["is_reused"]]
    assert sorted(reused) == [(1, "rewards"), (1, "selection"), (1, "turns")]


@pytest.mark.ci
def test_several_runs_are_distinguished(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    fill(store, "a-0", num_iterations=1, first_seed=0)
    fill(store, "a-1", num_iterations=1, first_seed=1)
    fill(store, "b", num_iterations=1, first_seed=2)
    assert matching_runs(store, ["b", "a-*", "a-1"]) == ["b", "a-0", "a-1"]
    with open_database(store, ["a-0", "a-1"]) as database:
        assert database.query("select distinct run from metrics order by run")["run"].to_pylist() == ["a-0", "a-1"]
    with pytest.raises(StoreError, match=r"no run 'a-2'.*did you mean a-"):
        matching_runs(store, ["a-2"])
    with pytest.raises(StoreError, match=r"no run matches 'c\*'"):
        matching_runs(store, ["c*"])
    (tmp_path / "runs" / "b" / "run.json").write_text("{")
    assert matching_runs(store, ["a-*"]) == ["a-0", "a-1"]  # a damaged run hides none of the others


def test_dropped_artifact_listed_as_dropped(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    fill(store, num_iterations=1)
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "w").write_bytes(b"1")
    key = store.runs.iteration("mine", 0)["update"]["samples"]
    manifest = store.manifest("samples", key)
    put_folder(
        store,
        "checkpoint",
        str(folder),
        Facts(key=key, stage=manifest.stage, settings={}, inputs=manifest.inputs, seed=None),
    )
    store.runs.record_stage("mine", 0, "update", {"checkpoint": key})
    store.drop("checkpoint", key)
    with open_database(store, ["mine"]) as database:
        rows = database.query("select is_dropped from artifacts where kind = 'checkpoint'").to_pylist()
    assert rows == [{"is_dropped": True}]


def test_missing_artifact_named_with_place(copied: Path) -> None:
    shutil.rmtree(parquet(copied, "rewards").parent)
    with open_database(Store(str(copied)), ["mine"]) as database:
        assert database.query("select count(*) from turns").num_rows == 1
        with pytest.raises(ArtifactMissingError, match=r"mine:\d:reward: no artifact rewards/"):
            database.query("select count(*) from rewards")


@pytest.mark.parametrize("offset", [0.1, 0.5, 0.9])
def test_flipped_byte_named_when_verifying(copied: Path, offset: float) -> None:
    flip(parquet(copied, "turns"), offset)
    with open_database(Store(str(copied)), ["mine"], should_verify=True) as database:
        assert database.query("from rewards").num_rows
        with pytest.raises(ArtifactDamagedError, match=r"turns/.*sha256 differs"):
            database.query("select count(*) from turns")


def test_damage_named_without_verifying(copied: Path) -> None:
    file = parquet(copied, "turns")
    content = bytearray(file.read_bytes())
    column = next(c for c in columns(file) if c.path_in_schema == "observation")
    content[column.dictionary_page_offset] ^= 0xFF
    file.write_bytes(content)
    with open_database(Store(str(copied)), ["mine"]) as database:
        assert database.query("select count(*) from rewards").num_rows
        with pytest.raises(ArtifactDamagedError, match=r"mine:\d:rollout: .*sha256 differs"):
            database.query("select max(observation) from turns")


class TestRemote:
    """Views over a store on a remote file system, with every range that is read recorded."""

    @pytest.fixture
    def remote(self, filled_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
        import fsspec

        memory = fsspec.filesystem("memory")
        for file in filled_folder.rglob("*"):
            if file.is_file():
                memory.pipe(f"/sql/{file.relative_to(filled_folder).as_posix()}", file.read_bytes())
        self.ranges: list[tuple[str, int]] = []
        read_range = Bucket.read_range

        def counted(bucket: Bucket, path: str, start: int, end: int) -> bytes:
            self.ranges.append((path, end - start))
            return read_range(bucket, path, start, end)

        monkeypatch.setattr(Bucket, "read_range", counted)
        yield Store("memory://sql")
        memory.rm("/sql", recursive=True)

    def test_answers_equal_local_stores(self, remote: Store, filled: Store) -> None:
        for question in (JOINED, "from trajectories order by all", "from metrics order by all"):
            with open_database(remote, ["mine"]) as there, open_database(filled, ["mine"]) as here:
                assert there.query(question) == here.query(question)

    def test_only_queried_columns_are_read(self, remote: Store) -> None:
        manifest = put_large(remote)
        with open_database(remote, ["large"]) as database:
            assert database.query("select avg(turn), count(distinct status) from turns").num_rows == 1
        whole = manifest.files[0].size_bytes
        footer, *others = self.ranges
        assert (footer[1], whole > 500_000) == (65_536, True)
        assert sum(size for _, size in others) < 0.02 * whole

    def test_unrequested_iterations_are_not_read(self, remote: Store) -> None:
        with open_database(remote, ["mine"]) as database:
            database.query("select avg(total) from rewards where iteration = 2")
            assert len({path for path, _ in self.ranges}) == 1
            self.ranges.clear()
            assert database.query("select run, iteration from rewards where iteration = 7").num_rows == 0
            assert self.ranges == []


def put_large(store: Store) -> Manifest:
    """Store a run whose only rollout is much larger than a Parquet footer."""
    work = {"settings": {}, "inputs": {}, "seed": None}
    stage = Stage(name="rollout", version=1)
    manifest = store.put_table("turns", example_turns(300), Facts(key="f" * 32, stage=stage, **work))
    store.runs.create("large", flow="starpo", preset=None, config={})
    store.runs.record_stage("large", 0, "rollout", {"turns": "f" * 32})
    return manifest


def columns(file: Path) -> list[pq.ColumnChunkMetaData]:
    metadata = pq.read_metadata(file)
    return [
        metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(metadata.num_columns)
    ]


def flip(file: Path, share: float) -> None:
    content = bytearray(file.read_bytes())
    content[int(len(content) * share)] ^= 1
    file.write_bytes(content)


@pytest.mark.ci
def test_prompts_are_text_the_model_read(tmp_path: Path) -> None:
    tokenizer, store = make_tokenizer(), Store(str(tmp_path / "store"))
    tokenizer.save_pretrained(tmp_path / "policy")
    facts = {"stage": Stage(name="rollout", version=1), "settings": {}, "inputs": {}, "seed": 0}
    key = stage_key(facts["stage"], {}, {}, 0)
    put_folder(store, "checkpoint", str(tmp_path / "policy"), Facts(key=key, **facts))
    turns = example_turns()
    store.put_table("turns", turns, Facts(key=key, **facts))
    for run in ("mine", "imported"):
        store.runs.create(run, flow="starpo", preset=None, config={"environment": {"type": "sokoban"}})
        store.runs.record_stage(run, 0, "rollout", {"turns": key})
    store.runs.record_stage("mine", 0, "warm_start", {"checkpoint": key})
    context: list[int] = []
    expected = []
    for row in turns.to_pylist():  # in order; only the first turn of a trajectory starts a context
        context = ([] if row["is_context_start"] else context) + row["prompt_ids"]
        texts = tokenizer.decode(row["prompt_ids"]), tokenizer.decode(context)
        expected.append((row["trajectory_id"], row["turn"], len(row["prompt_ids"]), *texts))
        context = context + row["response_ids"]
    query = "select trajectory_id, turn, num_prompt_tokens, prompt, context from prompts where run = '{}' order by all"
    with open_database(store, ["mine", "imported"]) as database:
        rows = database.query(query.format("mine")).to_pylist()
        assert [tuple(row.values()) for row in rows] == sorted(expected)
        alone = database.query(query.format("imported"))
        assert (alone.num_rows, alone["prompt"].null_count, alone["context"].null_count) == (len(expected),) * 3
        ids = database.query("select decoded(run, response_ids) as text from turns where run = 'mine' and turn = 0")
        assert set(ids["text"].to_pylist()) == {
            tokenizer.decode(row["response_ids"]) for row in turns.to_pylist() if row["turn"] == 0
        }
        assert database.query("select decoded('nobody', [1]) as a, decoded(null, [1]) as b")["a"].null_count == 1
        with pytest.raises(QueryError, match="decoded"):
            database.query("select decoded(1) from turns")
        with pytest.raises(QueryError):
            database.query("select decoded(run, [-1]) from turns")
