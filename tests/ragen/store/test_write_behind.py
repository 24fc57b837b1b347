"""Writes behind: in order, seen by their own run at once, tried again after an error, and never half there."""

import logging
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.core import url_to_fs

from ragen.errors import DataError, StoreError
from ragen.store import Store, datasets, write_behind
from ragen.store import store as store_module
from ragen.store.artifacts import Artifacts
from schemas.examples import example
from schemas.manifest import Manifest, Stage


class Gate:
    """Holds commits back, and has them fail when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_open = threading.Event()
        self.num_failures = 0
        self.committed: list[str] = []
        commit = Artifacts.commit

        def held(artifacts: Artifacts, folder: Path, manifest: Manifest, **settings: Any) -> Manifest:
            assert self._is_open.wait(20)
            if self.num_failures:
                self.num_failures -= 1
                raise StoreError("the store does not answer")
            self.committed.append(manifest.kind)
            return commit(artifacts, folder, manifest, **settings)

        monkeypatch.setattr(Artifacts, "commit", held)

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open()  # whatever the test did, nobody waits for ever


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "weights" / "deep").mkdir(parents=True)
    (tmp_path / "weights" / "deep" / "model.bin").write_bytes(b"weights")
    return str(tmp_path / "weights")


def put_folder_soon(store: Store, source: str, **facts: Any) -> None:
    with store.new_folder() as made:
        shutil.copytree(source, made, dirs_exist_ok=True)
        store.put_folder_soon("checkpoint", made, **facts)


def elsewhere(call: Any) -> Any:
    """What another process would be answered: a thread that does not belong to the run."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def test_outside_of_a_run_soon_is_now(store: Store, work: dict[str, Any], folder: str) -> None:
    store.put_table_soon("turns", example("turns"), **work)
    put_folder_soon(store, folder, **work)
    assert elsewhere(lambda: (store.has("turns", work["key"]), store.has("checkpoint", work["key"]))) == (True, True)


def test_its_run_reads_what_is_not_stored_yet_and_others_do_not(store: Store, work: dict[str, Any], gate: Gate) -> None:
    with store.writing_behind() as behind:
        store.put_table_soon("turns", example("turns"), **work)
        assert store.has("turns", work["key"])
        assert store.was_made("turns", work["key"])
        assert store.dropped("turns", work["key"]) is None
        assert store.read_table("turns", work["key"]).equals(example("turns"))
        assert store.read_table("turns", work["key"], ["turn"]).column_names == ["turn"]
        assert Store(store.url).has("turns", work["key"])
        assert not elsewhere(lambda: store.has("turns", work["key"]))
        gate.open()
        behind.drain()
        assert elsewhere(lambda: store.has("turns", work["key"]))
    stored = store.read_table("turns", work["key"])
    assert stored.equals(example("turns"))


def test_whoever_wants_the_manifest_waits(store: Store, work: dict[str, Any], gate: Gate) -> None:
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work, headline={"x": 1.0}, provenance={"seconds": 2.5})
        threading.Timer(0.2, gate.open).start()
        manifest = store.manifest("turns", work["key"])
    assert manifest.is_intact
    assert (manifest.headline, manifest.provenance["seconds"]) == ({"x": 1.0}, 2.5)
    assert manifest.settings == {"a": [1, 2.5]}
    assert elsewhere(lambda: store.manifest("turns", work["key"])) == manifest


def test_same_content_and_identity_as_when_waited_for(tmp_path: Path, work: dict[str, Any]) -> None:
    now, soon = Store(str(tmp_path / "now")), Store(str(tmp_path / "soon"))
    with soon.writing_behind():
        for store in (now, soon):
            store.put_table_soon("turns", example("turns"), **work)
    ours, theirs = (store.manifest("turns", work["key"]) for store in (now, soon))
    assert ours.model_copy(update={"provenance": {}, "manifest_digest": ""}) == theirs.model_copy(
        update={"provenance": {}, "manifest_digest": ""}
    )


def test_everything_is_written_in_the_order_in_which_it_was_put(store: Store, work: dict[str, Any], gate: Gate) -> None:
    with store.writing_behind():
        for kind in ("turns", "rewards", "selection"):
            store.put_table_soon(kind, example(kind), **work)
        store.when_written(lambda: gate.committed.append("record"))
        store.put_table_soon("samples", example("samples"), **work)
        assert gate.committed == []
        threading.Timer(0.2, gate.open).start()
        store.put_table("metrics", example("metrics"), **work)  # waits for those before
        assert gate.committed == ["turns", "rewards", "selection", "record", "samples", "metrics"]


def test_what_is_put_twice_is_written_once(store: Store, work: dict[str, Any], gate: Gate) -> None:
    with store.writing_behind():
        for _ in range(3):
            store.put_table_soon("turns", example("turns"), **work)
        gate.open()
    assert gate.committed == ["turns"]


def test_what_the_caller_changes_later_does_not_matter(store: Store, work: dict[str, Any], gate: Gate) -> None:
    work["settings"], work["inputs"] = {"a": [1]}, {"checkpoint": "c"}
    headline = {"x": 1.0}
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work, headline=headline)
        work["settings"]["a"].append(2)
        work["inputs"]["turns"] = headline["y"] = 2.0
        gate.open()
        manifest = store.manifest("turns", work["key"])
    assert (manifest.settings, manifest.inputs, manifest.headline) == ({"a": [1]}, {"checkpoint": "c"}, {"x": 1.0})


def read(store: Store, key: str) -> None:
    store.read_table("turns", key)


def put_next(store: Store, key: str) -> None:
    store.put_table_soon("rewards", example("rewards"), key=key, stage=Stage(name="s", version=1), settings={},
                         inputs={}, seed=None)  # fmt: skip


def finish(store: Store, key: str) -> None:
    store.finish_writing()


@pytest.mark.parametrize("ask", [read, put_next, finish])
def test_data_that_break_their_contract_stop_whoever_comes_next(
    store: Store, work: dict[str, Any], gate: Gate, ask: Any
) -> None:
    gate.open()
    with store.writing_behind() as behind:
        store.put_table_soon("turns", example("turns").slice(1), **work)
        behind._thread.submit(lambda: None).result()  # it has been looked at by now
        for _ in range(3):
            with pytest.raises(DataError, match="dataset 'turns'"):
                ask(store, work["key"])
    assert gate.committed == []
    assert not store.has("turns", work["key"])
    files, root = url_to_fs(f"{store.url}/quarantine")
    (kept,) = files.ls(root, detail=False)  # once, however often it was asked for
    names = {Path(file).name for file in files.ls(kept, detail=False)}
    assert names == {"data.parquet", "failure_cases.parquet", "reason.txt"}


def test_nobody_reads_data_that_are_yet_to_be_validated(
    store: Store, work: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    looked_at: list[str] = []
    validate = store_module.validate

    def held(table: Any, kind: str) -> None:
        assert may_go_on.wait(20)
        validate(table, kind)
        looked_at.append(kind)

    monkeypatch.setattr(store_module, "validate", held)
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work)
        assert looked_at == []
        threading.Timer(0.2, may_go_on.set).start()
        store.read_table("turns", work["key"])
        assert looked_at == ["turns"]
        gate.open()


def test_whoever_waits_for_one_artifact_does_not_write_the_next(store: Store, work: dict[str, Any], gate: Gate) -> None:
    with store.writing_behind() as behind:
        store.put_table_soon("turns", example("turns"), **work)
        while not behind._is_writing.locked():
            time.sleep(0.01)
        store.put_table_soon("rewards", example("rewards"), **work)
        behind._thread.shutdown(wait=False, cancel_futures=True)  # it writes the turns, and no more
        threading.Timer(0.2, gate.open).start()
        store.manifest("turns", work["key"])
        assert gate.committed == ["turns"]


def test_rows_in_a_wider_type_are_read_as_the_datasets_own(store: Store, work: dict[str, Any], gate: Gate) -> None:
    nullable = example("turns").cast(pa.schema([field.with_nullable(True) for field in example("turns").schema]))
    with store.writing_behind():
        store.put_table_soon("turns", nullable, **work)
        assert store.read_table("turns", work["key"]).schema.equals(example("turns").schema, check_metadata=True)
        gate.open()


def test_what_may_come_out_otherwise_is_waited_for(store: Store, work: dict[str, Any], folder: str) -> None:
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work, is_deterministic=False)
        put_folder_soon(store, folder, **work, is_deterministic=False)
        assert elsewhere(lambda: store.has("turns", work["key"]) and store.has("checkpoint", work["key"]))


def test_a_write_that_fails_is_done_again_by_the_next_one(store: Store, work: dict[str, Any], gate: Gate) -> None:
    gate.num_failures = 1
    gate.open()
    with store.writing_behind() as behind:
        store.put_table_soon("turns", example("turns"), **work)
        behind._thread.submit(lambda: None).result()  # it has failed by now
        assert not elsewhere(lambda: store.has("turns", work["key"]))
        store.put_table_soon("rewards", example("rewards"), **work)
    assert gate.committed == ["turns", "rewards"]


def test_a_store_that_stays_away_stops_the_run_and_loses_nothing(
    store: Store, work: dict[str, Any], gate: Gate
) -> None:
    gate.num_failures = 3
    gate.open()
    with store.writing_behind() as behind:
        store.put_table_soon("turns", example("turns"), **work)
        behind._thread.submit(lambda: None).result()
        for _ in range(2):  # the task that came next, and its retry
            with pytest.raises(StoreError, match="does not answer"):
                store.put_table_soon("rewards", example("rewards"), **work)
            assert store.read_table("turns", work["key"]).equals(example("turns"))
        store.put_table_soon("rewards", example("rewards"), **work)
        behind.drain()
        assert gate.committed == ["turns", "rewards"]


def test_what_cannot_be_stored_in_the_end_is_counted(
    store: Store, work: dict[str, Any], gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.num_failures = 10
    gate.open()
    with caplog.at_level(logging.WARNING), store.writing_behind() as behind:
        store.put_table_soon("turns", example("turns"), **work)
        behind._thread.submit(lambda: None).result()
        with pytest.raises(StoreError):
            behind.drain()
    assert "results not stored: 1; the run computes them again when it goes on" in caplog.text
    assert gate.committed == []
    assert not store.has("turns", work["key"])


def test_the_queue_has_an_end(store: Store, work: dict[str, Any], gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "MAX_WAITING", 2)
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work)
        store.put_table_soon("rewards", example("rewards"), **work)
        threading.Timer(0.2, gate.open).start()
        store.put_table_soon("selection", example("selection"), **work)
        assert gate.committed[:2] == ["turns", "rewards"]


def test_dropping_comes_after_what_was_put(store: Store, work: dict[str, Any], folder: str, gate: Gate) -> None:
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work)
        threading.Timer(0.2, gate.open).start()
        store.drop("turns", work["key"])
        assert gate.committed == ["turns"]
        assert store.dropped("turns", work["key"]) is not None


def test_a_checkpoint_on_its_way_to_remote_storage_is_read_from_this_machine(
    work: dict[str, Any], folder: str, gate: Gate
) -> None:
    store = Store("memory://behind/store")
    with store.writing_behind() as behind:
        put_folder_soon(store, folder, **work)
        here = Path(store.local_folder("checkpoint", work["key"]))
        assert (here / "deep" / "model.bin").read_bytes() == b"weights"
        assert gate.committed == []
        gate.open()
        behind.drain()
        assert Path(store.local_folder("checkpoint", work["key"])) == here
    assert store.read_file("checkpoint", work["key"], "deep/model.bin") == b"weights"


def test_another_writer_who_was_first_does_not_take_the_folder_away(
    work: dict[str, Any], folder: str, gate: Gate
) -> None:
    store = Store("memory://raced/store")
    with store.writing_behind():
        put_folder_soon(store, folder, **work)
        here = Path(store.local_folder("checkpoint", work["key"]))
        gate.open()
        elsewhere(lambda: Store(store.url).put_folder("checkpoint", folder, **work))
        store.finish_writing()
        assert (here / "deep" / "model.bin").read_bytes() == b"weights"
    there = Path(store.local_folder("checkpoint", work["key"]))
    assert (there / "deep" / "model.bin").read_bytes() == b"weights"


def test_rows_are_validated_once(store: Store, work: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    check = datasets.Validator.check
    monkeypatch.setattr(datasets.Validator, "check", lambda self, rows: (checked.append(rows), check(self, rows))[1])
    with store.writing_behind():
        store.put_table_soon("turns", example("turns"), **work)
    store.read_table("turns", work["key"])
    assert len(checked) == 1


def test_stages_get_the_lock_back_soon_while_a_run_writes_behind(tmp_path):
    before = sys.getswitchinterval()
    with Store(str(tmp_path)).writing_behind():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
