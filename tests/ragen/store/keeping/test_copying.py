"""A run is copied to another store and back completely, each artifact once; what cannot be copied is named."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts import artifacts
from starpo.ragen.store.keeping import copying
from starpo.ragen.store.keeping.copying import copy_run
from starpo.ragen.store.keeping.garbage import find_garbage
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.remote.bucket import Bucket
from starpo.ragen.store.remote.opening import open_location

MakeRun = Callable[..., list[tuple[str, str]]]


pytestmark = pytest.mark.usefixtures("nothing_verified_yet")


@pytest.fixture
def other() -> Store:
    """Another store, remote as far as the code can tell."""
    return Store(f"memory://{uuid.uuid4().hex}/other")


def copy(source: Store, run: str, target: Store) -> copying.Copy:
    return copy_run(open_location(source.url), run, open_location(target.url))


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_round_trip_is_byte_identical(local: Store, other: Store, make_run: MakeRun, tmp_path: Path) -> None:
    made = make_run(local, "a")
    there, back = copy(local, "a", other), copy(other, "a", Store(str(tmp_path / "back")))
    assert content(tmp_path / "back") == content(tmp_path / "store")
    assert (there.num_copied, there.num_present) == (back.num_copied, back.num_present) == (len(made), 0)
    assert there.bytes_copied == back.bytes_copied > 0
    assert other.runs.get("a") == local.runs.get("a")
    assert other.runs.iterations("a") == local.runs.iterations("a")
    assert other.runs.state("a") == local.runs.state("a")
    for kind, key in made:
        assert other.manifest(kind, key).content_digest == local.manifest(kind, key).content_digest
        assert other.manifest(kind, key).provenance == local.manifest(kind, key).provenance
    assert verify_store(open_location(other.url)).damages == []
    assert find_garbage(open_location(other.url)).faults == []


def test_only_missing_needed_artifacts_are_copied(local: Store, other: Store, make_run: MakeRun) -> None:
    mine, theirs = make_run(local, "a", 1), make_run(local, "b", 1, keep=0.25)
    assert copy(local, "a", other).num_copied == len(mine)
    assert {run.name for run in other.runs.list()} == {"a"}
    again = copy(local, "a", other)
    assert (again.num_copied, again.bytes_copied, again.num_present) == (0, 0, len(mine))
    second = copy(local, "b", other)
    assert second.num_copied == len(set(theirs) - set(mine))
    assert second.num_present == len(set(theirs) & set(mine))


def test_unrecorded_inputs_are_copied(local: Store, other: Store, make_run: MakeRun) -> None:
    made = make_run(local, "a", 2)
    local.runs.create("branch", flow="replay", preset=None, config={})
    local.runs.record_stage("branch", 0, "update", {"checkpoint": made[-1][1]})
    assert copy(local, "branch", other).num_copied == len(made)


def test_killed_copy_is_resumed(
    store: Store, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, target = make_run(store, "a"), Store(str(tmp_path / "copy"))
    copied: list[str] = []
    receive = artifacts.Artifacts.copy_from

    def killed(self: artifacts.Artifacts, source: artifacts.Artifacts, manifest: artifacts.Manifest) -> object:
        if len(copied) == 5:
            raise KeyboardInterrupt
        copied.append(manifest.key)
        return receive(self, source, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(copying, "NUM_TRANSFERS", 1)
        patch.setattr(artifacts.Artifacts, "copy_from", killed)
        with pytest.raises(KeyboardInterrupt):
            copy(store, "a", target)
    assert target.runs.list() == []
    done = copy(store, "a", target)
    assert (done.num_present, done.num_copied) == (5, len(made) - 5)
    assert target.runs.get("a") == store.runs.get("a")


def test_continued_run_is_updated(local: Store, other: Store, make_run: MakeRun) -> None:
    make_run(local, "a", 1)
    with local.runs.hold("a"):
        assert copy(local, "a", other).is_running
    make_run(local, "a", 2)
    done = copy(local, "a", other)
    assert not done.is_running
    assert done.num_copied == 6
    assert other.runs.iterations("a") == local.runs.iterations("a")
    assert other.runs.state("a") == local.runs.state("a")


def test_run_ending_during_copy_stays_running(local: Store, other: Store, make_run: MakeRun) -> None:
    """Its records were read before it ended; a target that marks it completed would seal incomplete records."""
    make_run(local, "a", 2)
    local.runs.set_state("a", "running", "update")

    def ends(done: int, total: int) -> None:
        local.runs.set_state("a", "completed", "completed")

    copy_run(open_location(local.url), "a", open_location(other.url), ends)
    assert local.runs.state("a").status == "completed"
    assert other.runs.state("a").status == "running"


def test_newer_target_records_are_kept(local: Store, other: Store, make_run: MakeRun) -> None:
    make_run(local, "a", 1)
    copy(local, "a", other)
    make_run(other, "a", 2)
    state = other.runs.state("a")
    copy(local, "a", other)
    assert sorted(other.runs.iterations("a")) == [0, 1]
    assert other.runs.state("a") == state


def test_dropped_checkpoints_stay_dropped(local: Store, other: Store, make_run: MakeRun) -> None:
    made = make_run(local, "a", 2)
    key = [key for kind, key in made if kind == "checkpoint"][1]
    original = local.drop("checkpoint", key)
    done = copy(local, "a", other)
    assert (done.num_copied, done.num_dropped) == (len(made) - 1, 1)
    assert other.dropped("checkpoint", key) == original
    assert copy(local, "a", other).num_copied == 0


class TestRefusals:
    """Each refusal has its own message; no run is copied and nothing is lost."""

    def refuse(self, source: Store, run: str, target: Store, kind: type[StoreError], *words: str) -> None:
        before = [(file.path, file.size_bytes) for file in open_location(target.url).files("")]
        with pytest.raises(kind) as caught:
            copy(source, run, target)
        for word in words:
            assert word in str(caught.value)
        assert [(file.path, file.size_bytes) for file in open_location(target.url).files("")] == before

    def test_the_same_store(self, local: Store, make_run: MakeRun) -> None:
        make_run(local, "a", 1)
        self.refuse(local, "a", Store(f"file://{local.url}"), StoreError, "is the store that run a is in")

    def test_a_missing_artifact_is_named(self, local: Store, other: Store, make_run: MakeRun) -> None:
        turns = next(key for kind, key in make_run(local, "a", 1) if kind == "turns")
        open_location(local.url).delete([f"turns/{turns}/manifest.json"])
        named = f"turns/{turns} is not in the store; needed by run a, iteration 0, stage rollout"
        self.refuse(local, "a", other, ArtifactMissingError, named, "nothing was copied")

    def test_flipped_byte_stops_the_copy(self, store: Store, make_run: MakeRun, tmp_path: Path) -> None:
        kind, key = make_run(store, "a", 1)[-1]
        location = open_location(store.url)
        path = next(file.path for file in location.files(f"{kind}/{key}") if file.path.endswith(".safetensors"))
        data = bytearray(location.read(path))
        data[7] ^= 1
        location.replace(path, bytes(data))
        target = Store(str(tmp_path / "copy"))
        with pytest.raises(ArtifactDamagedError, match=rf"{kind}/{key} in .* is damaged: .*sha256 differs"):
            copy(store, "a", target)
        assert target.runs.list() == []
        assert not target.has(kind, key)

    def test_another_run_of_that_name(self, local: Store, other: Store, make_run: MakeRun) -> None:
        make_run(local, "a", 1)
        make_run(other, "a", 1, keep=0.25)
        self.refuse(local, "a", other, StoreError, "a run named 'a' exists", "keep: was 0.25, is 0.5")

    def test_another_content_for_the_same_work(self, local: Store, other: Store, make_run: MakeRun) -> None:
        kind, key = make_run(local, "a", 1)[-1]
        make_run(other, "a", 1)
        different = other.manifest(kind, key).model_copy(update={"content_digest": "0" * 64}).sealed()
        open_location(other.url).replace(f"{kind}/{key}/manifest.json", different.model_dump_json().encode())
        self.refuse(local, "a", other, StoreError, f"{kind}/{key} with other content", "copy into another store")

    def test_a_damaged_artifact_at_the_target(self, local: Store, other: Store, make_run: MakeRun) -> None:
        kind, key = make_run(local, "a", 1)[-1]
        copy(local, "a", other)
        open_location(other.url).delete([f"{kind}/{key}/{other.manifest(kind, key).files[0].path}"])
        self.refuse(local, "a", other, ArtifactDamagedError, f"{kind}/{key}", "deep/config.json is missing")

    def test_someone_at_work_on_it_there(self, local: Store, other: Store, make_run: MakeRun) -> None:
        make_run(local, "a", 1)
        with other.runs.hold("a"):
            self.refuse(local, "a", other, StoreError, f"process {os.getpid()} on this machine is working on run 'a'")

    def test_target_that_loses_bytes_fails(
        self, local: Store, other: Store, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_run(local, "a", 1)
        upload = Bucket.upload

        def broken(self: Bucket, file: Path, path: str) -> None:
            upload(self, file, path)
            if path.endswith(".safetensors"):
                self.replace(path, b"something else")

        with monkeypatch.context() as patch:
            patch.setattr(Bucket, "upload", broken)
            with pytest.raises(StoreError, match=r"was not stored as sent: model\.safetensors has 14 bytes"):
                copy(local, "a", other)
        assert other.runs.list() == []
        copy(local, "a", other)
        assert verify_store(open_location(other.url)).damages == []

    def test_deletion_at_target_stops_copy(
        self, local: Store, other: Store, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If an artifact that the target already had is deleted during the copy, no incomplete run appears there."""
        make_run(local, "a", 1)
        kind, key = make_run(other, "b", 1, keep=0.25)[0]

        def delete(*_: object) -> None:
            open_location(other.url).delete([f"{kind}/{key}/manifest.json"])

        monkeypatch.setattr(copying, "_copy_dropped", delete)
        with pytest.raises(StoreError, match=rf"{kind}/{key} was deleted from .* while a was copied; copy it again"):
            copy(local, "a", other)
        assert [run.name for run in other.runs.list()] == ["b"]

    def test_a_manifest_that_would_lead_elsewhere(self, local: Store, other: Store, make_run: MakeRun) -> None:
        """Paths in a store from someone else are not trusted."""
        kind, key = make_run(local, "a", 1)[-1]
        manifest = local.manifest(kind, key)
        entry = manifest.files[0].model_copy(update={"name": "../../../outside"})
        forged = manifest.model_copy(update={"files": (entry,)}).sealed()
        open_location(local.url).replace(f"{kind}/{key}/manifest.json", forged.model_dump_json().encode())
        self.refuse(local, "a", other, ArtifactMissingError, "names a file outside its folder")
