"""Only what no run reaches is deleted, and nothing that a run is about to name."""

import os
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import DataError, StoreError
from starpo.ragen.store import Facts, Store, keeping
from starpo.ragen.store.keeping.garbage import delete_garbage, find_garbage
from starpo.ragen.store.keeping.inventory import take_inventory
from starpo.ragen.store.remote.folder import Folder
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import Manifest, Stage
from tests.examples import example
from tests.ragen.store.keeping.garbage import LATER, MakeRun, forget, paths

NOW = timedelta(0)


def artifacts(store: Store) -> set[tuple[str, str]]:
    return set(take_inventory(open_location(store.url)).artifacts)


def test_what_every_run_needs_stays(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    make_run(store, "b", 1, keep=0.25)
    before = paths(store)
    garbage = find_garbage(open_location(store.url), now=LATER)
    assert garbage.doomed == []
    assert garbage.faults == []
    delete_garbage(open_location(store.url), garbage)
    assert paths(store) == before


def test_artifacts_of_deleted_run_are_removed(store: Store, make_run: MakeRun) -> None:
    mine, other = make_run(store, "a", 1), make_run(store, "b", 1, keep=0.25)
    assert set(mine) & set(other)
    forget(store, "b")
    garbage = find_garbage(open_location(store.url), now=LATER)
    assert {tuple(doomed.folder.path.split("/")) for doomed in garbage.doomed} == set(other) - set(mine)
    progress: list[tuple[int, int]] = []
    delete_garbage(open_location(store.url), garbage, on_progress=lambda *counts: progress.append(counts))
    total = len(garbage.doomed)
    assert progress == [(done, total) for done in range(1, total + 1)]
    assert artifacts(store) == set(mine)
    for kind, key in mine:
        store.local_folder(kind, key)
    assert not any(path.startswith("tmp/") for path in paths(store))


def test_inputs_without_record_are_kept(store: Store, make_run: MakeRun) -> None:
    """The branch's record names only its last update."""
    made = make_run(store, "a")
    store.runs.create("branch", flow="replay", preset=None, config={})
    kind, key = made[-1]
    store.runs.record_stage("branch", 1, "update", {kind: key})
    forget(store, "a")
    assert find_garbage(open_location(store.url), now=LATER).doomed == []


def test_young_artifacts_stay(store: Store, make_run: MakeRun) -> None:
    mine, other = make_run(store, "a", 1), make_run(store, "b", 1, keep=0.25)
    forget(store, "b")
    garbage = find_garbage(open_location(store.url))
    assert garbage.doomed == []
    assert {tuple(folder.path.split("/")) for folder in garbage.young} == set(other) - set(mine)
    assert find_garbage(open_location(store.url), min_age=NOW).young == []


@pytest.mark.parametrize(("age_h", "is_gone"), [(0.0, False), (23.9, False), (24.1, True), (1000.0, True)])
def test_age_is_of_newest_file(local: Store, make_run: MakeRun, tmp_path: Path, age_h: float, is_gone: bool) -> None:
    make_run(local, "a", 1)
    other = make_run(local, "b", 1, keep=0.25)[-1]
    forget(local, "b")
    stamp = time.time() - age_h * 3600
    for number, file in enumerate(sorted(tmp_path.joinpath("store", *other).rglob("*.*"))):
        os.utime(file, (stamp - number * 86_400,) * 2)
    doomed = find_garbage(open_location(local.url)).doomed
    assert [item.folder.path for item in doomed] == (["/".join(other)] if is_gone else [])


WORK = st.integers(0, 11)


@pytest.mark.ci
@given(inputs=st.lists(st.sets(WORK), min_size=12, max_size=12), named=st.lists(st.sets(WORK), min_size=1, max_size=3))
def test_exactly_what_is_reached_is_kept(inputs: list[set[int]], named: list[set[int]]) -> None:
    """Holds for any records over any graph of work; work n is made from work with lower numbers."""
    store = Store(f"memory://{uuid.uuid4().hex}/store")
    location = open_location(store.url)
    for number, sources in enumerate(inputs):
        manifest = Manifest(
            kind="metrics", key=f"{number:032x}", stage=Stage(name="update", version=1), settings={}, seed=None,
            inputs={f"role {source}": f"{source:032x}" for source in sources if source < number},
            dataset_version=1, num_rows=0, files=(), content_digest="0" * 64,
        )  # fmt: skip
        location.replace(f"metrics/{manifest.key}/manifest.json", manifest.sealed().model_dump_json().encode())
    for number, keys in enumerate(named):
        store.runs.create(f"run-{number}", flow="starpo", preset=None, config={})
        for key in keys:
            store.runs.record_stage(f"run-{number}", key % 3, f"stage {key}", {"metrics": f"{key:032x}"})
    expected = set.union(*named)
    for number in reversed(range(12)):
        if number in expected:
            expected |= {source for source in inputs[number] if source < number}
    garbage = find_garbage(location, now=LATER)
    assert {int(item.folder.path[-32:], 16) for item in garbage.doomed} == set(range(12)) - expected
    delete_garbage(location, garbage)
    assert {int(key, 16) for _, key in artifacts(store)} == expected
    assert find_garbage(location, now=LATER).faults == []


@pytest.mark.ci
def test_what_a_run_names_meanwhile_stays(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    kind, key = make_run(store, "b", 1, keep=0.25)[-1]
    forget(store, "b")
    garbage, before = find_garbage(open_location(store.url), now=LATER), artifacts(store)
    store.runs.create("c", flow="starpo", preset=None, config={})
    store.runs.record_stage("c", 0, "update", {kind: key})
    with pytest.raises(StoreError, match=r"nothing was deleted .*: a run has just begun to use some of it"):
        delete_garbage(open_location(store.url), garbage)
    assert artifacts(store) == before


def test_recreated_artifact_is_not_deleted(store: Store, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(store, "a", 1)
    other = make_run(store, "b", 1, keep=0.25)
    forget(store, "b")
    garbage = find_garbage(open_location(store.url), now=LATER)
    delete = keeping.garbage._delete_files

    def delete_late(*arguments: object) -> None:
        if store.runs.find("b") is None:
            make_run(store, "b", 1, keep=0.25)
        delete(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(keeping.garbage, "NUM_REQUESTS", 1)
    monkeypatch.setattr(keeping.garbage, "_delete_files", delete_late)
    delete_garbage(open_location(store.url), garbage)
    assert set(other) <= artifacts(store)
    manifests = [store.manifest(*artifact) for artifact in other]
    assert all(store.faults(manifest) == [] for manifest in manifests)


@pytest.mark.ci
def test_killed_deletion_is_resumed(store: Store, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = make_run(store, "a", 1), make_run(store, "b", 1, keep=0.25)
    forget(store, "b")
    location = open_location(store.url)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(keeping.garbage, "_delete_files", killed)
        with pytest.raises(KeyboardInterrupt):
            delete_garbage(location, find_garbage(location, now=LATER))
    assert artifacts(store) == set(mine)
    assert not any(store.has(*artifact) for artifact in set(other) - set(mine))
    left = find_garbage(location, now=LATER)
    assert {doomed.category for doomed in left.doomed} == {
        "temporary" if isinstance(location, Folder) else "unfinished"
    }
    delete_garbage(location, left)
    assert {path.rsplit("/", 1)[0] for path in paths(store)} == {
        file.path.rsplit("/", 1)[0] for folder in take_inventory(location).artifacts.values() for file in folder.files
    }


class TestLeftovers:
    """Leftovers of killed writers, quarantined data and foreign files."""

    def test_old_staged_folders_are_deleted(self, local: Store, make_run: MakeRun, tmp_path: Path) -> None:
        make_run(local, "a", 1)
        tmp = tmp_path / "store" / "tmp"
        (tmp / ("0" * 32) / "deep").mkdir(parents=True)
        (tmp / ("0" * 32) / "deep" / "part").write_bytes(b"half")
        (tmp / ("1" * 32)).mkdir()
        (tmp / f"incomplete-turns-x-{'2' * 32}").mkdir()
        (tmp / "mine").mkdir()
        (tmp / "mine" / "notes.txt").write_text("not a writer's")
        location = open_location(local.url)
        assert find_garbage(location).doomed == []
        assert len(find_garbage(location).young) == 3
        garbage = find_garbage(location, now=LATER)
        assert {doomed.kind for doomed in garbage.doomed} == {"temporary"}
        delete_garbage(location, garbage)
        assert [path.name for path in tmp.iterdir()] == ["mine"]

    def test_old_temporary_records_are_deleted(self, local: Store, make_run: MakeRun, tmp_path: Path) -> None:
        make_run(local, "a", 1)
        left = tmp_path / "store" / "runs" / "a" / "iterations" / f".00000.json.{'a' * 32}"
        left.write_text("{")
        delete_garbage(open_location(local.url), find_garbage(open_location(local.url)))
        assert left.exists()
        delete_garbage(open_location(local.url), find_garbage(open_location(local.url), now=LATER))
        assert not left.exists()
        assert local.runs.iterations("a")

    def test_old_partial_uploads_are_deleted(self, store: Store, make_run: MakeRun) -> None:
        make_run(store, "a", 1)
        location = open_location(store.url)
        location.replace(f"turns/{'f' * 32}/0123456789ab/part-00000.parquet", b"half")
        assert find_garbage(location).doomed == []
        garbage = find_garbage(location, now=LATER)
        assert [doomed.kind for doomed in garbage.doomed] == ["unfinished"]
        delete_garbage(location, garbage)
        assert not any("f" * 32 in path for path in paths(store))

    def test_lost_race_files_are_deleted(self, make_run: MakeRun) -> None:
        store = Store("memory://lost-race/store")
        kind, key = make_run(store, "a", 1)[-1]
        location = open_location(store.url)
        location.replace(f"{kind}/{key}/0123456789ab/model.safetensors", b"half")
        before = set(paths(store))
        garbage = find_garbage(location, now=LATER)
        assert [doomed.folder.path for doomed in garbage.doomed] == [f"{kind}/{key}/0123456789ab"]
        delete_garbage(location, garbage)
        assert before - set(paths(store)) == {f"{kind}/{key}/0123456789ab/model.safetensors"}
        assert store.faults(store.manifest(kind, key)) == []

    def test_quarantine_stays_unless_it_is_said(self, store: Store, make_run: MakeRun) -> None:
        make_run(store, "a", 1)
        facts = Facts(key="f" * 32, stage=Stage(name="rollout", version=1), settings={}, inputs={}, seed=0)
        with pytest.raises(DataError):
            store.put_table("turns", example("turns").slice(1), facts)
        location = open_location(store.url)
        garbage = find_garbage(location, now=LATER)
        assert (len(garbage.quarantined), garbage.doomed) == (1, [])
        assert find_garbage(location, quarantine_age=timedelta(days=3), now=LATER).doomed == []
        garbage = find_garbage(location, quarantine_age=timedelta(days=1), now=LATER)
        assert (garbage.quarantined, [doomed.kind for doomed in garbage.doomed]) == ([], ["quarantine"])
        delete_garbage(location, garbage)
        assert not any(path.startswith("quarantine/") for path in paths(store))

    def test_foreign_files_are_ignored(self, local: Store, make_run: MakeRun, tmp_path: Path) -> None:
        make_run(local, "a", 1)
        for path in ("papers/starpo/manifest.json", "turns/notes/today.txt", "notes.txt", "ablations/x/result.json"):
            (tmp_path / "store" / path).parent.mkdir(exist_ok=True, parents=True)
            (tmp_path / "store" / path).write_text("{}")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "manifest.json").write_text("{}")
        (tmp_path / "store" / "turns" / ("e" * 32)).symlink_to(tmp_path / "elsewhere")
        assert find_garbage(open_location(local.url), now=LATER).doomed == []


def test_store_without_runs_is_refused(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    forget(store, "a")
    with pytest.raises(StoreError, match=r"there are no runs in .*, so all of its 7 artifacts would be deleted"):
        find_garbage(open_location(store.url), now=LATER)


def test_active_run_requires_minimum_age(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    make_run(store, "b", 1, keep=0.25)
    forget(store, "b")
    location = open_location(store.url)
    with store.runs.hold("a"):
        garbage = find_garbage(location, min_age=timedelta(minutes=59))
        with pytest.raises(StoreError, match=r"nothing was deleted .*: a is running there.* --min-age 1h"):
            delete_garbage(location, garbage)
        delete_garbage(location, find_garbage(location, min_age=timedelta(hours=1), now=LATER))
    assert len(artifacts(store)) == 7


def test_half_copied_run_keeps_its_artifacts(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    open_location(store.url).delete(["runs/a/run.json"])
    assert find_garbage(open_location(store.url), now=LATER).doomed == []
