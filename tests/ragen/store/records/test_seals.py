"""Records form a chain: any change, removal or insertion breaks it; kills and copies do not."""

import hashlib
import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.copying import copy_run
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.records.seals import Seals
from starpo.ragen.store.remote.opening import open_location

MakeRun = Callable[..., list[tuple[str, str]]]


def begin(store: Store) -> None:
    store.runs.create("r", flow="starpo", preset=None, config={"seed": 1})


def work(store: Store, keys: str = "k", iterations: range = range(3)) -> None:
    """Record stages as a run does, in the same order."""
    for iteration in iterations:
        for stage in ("rollout", "update"):
            store.runs.record_stage("r", iteration, stage, {"metrics": f"{keys}{iteration}"})


def completed(store: Store) -> Store:
    begin(store)
    with store.runs.hold("r"):
        store.runs.set_state("r", "running")
        work(store)
        store.runs.set_state("r", "completed")
    return store


def file(store: Store, name: str) -> Path:
    return Path(store.url) / "runs" / "r" / name


def edit(store: Store, name: str, old: str, new: str) -> None:
    path = file(store, name)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_records_chain_by_digest(local: Store) -> None:
    completed(local)
    names = ["run.json", *(f"iterations/{iteration:05d}.json" for iteration in range(3))]
    for before, after in pairwise(names):
        digest = hashlib.sha256(file(local, before).read_bytes()).hexdigest()
        assert json.loads(file(local, after).read_text())["previous"] == digest
    head = hashlib.sha256(file(local, names[-1]).read_bytes()).hexdigest()
    assert json.loads(file(local, "state.json").read_text())["head"] == head
    assert local.runs.seals("r") == Seals()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("run.json", '"seed": 1', '"seed": 2'),
        ("iterations/00000.json", "k0", "k1"),
        ("iterations/00001.json", "k1", "k2"),
        ("iterations/00002.json", "k2", "k1"),
        ("iterations/00001.json", "\n", "\n\n"),
    ],
)
def test_changed_record_names_both_digests(local: Store, name: str, old: str, new: str) -> None:
    completed(local)
    written = hashlib.sha256(file(local, name).read_bytes()).hexdigest()
    edit(local, name, old, new)
    actual = hashlib.sha256(file(local, name).read_bytes()).hexdigest()
    broken = local.runs.seals("r").broken
    assert list(broken) == [name]
    assert actual in broken[name]
    assert written in broken[name]
    with pytest.raises(ArtifactDamagedError, match="start the run again with the same settings"):
        local.runs.check_sealed("r")


@pytest.mark.parametrize("iteration", [0, 1, 2])
def test_missing_record_breaks_the_chain(local: Store, iteration: int) -> None:
    completed(local)
    file(local, f"iterations/{iteration:05d}.json").unlink()
    assert len(local.runs.seals("r").broken) == 1


def test_inserted_record_breaks_the_chain(local: Store) -> None:
    completed(local)
    shutil.copy(file(local, "iterations/00002.json"), file(local, "iterations/00003.json"))
    assert local.runs.seals("r").broken


@pytest.mark.ci
def test_verify_store_names_broken_record(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 2)
    location = open_location(store.url)
    assert verify_store(location).damages == []
    text = location.read("runs/a/iterations/00000.json")
    location.replace("runs/a/iterations/00000.json", text.replace(b"\n", b"\n\n"))
    [damage] = verify_store(location).damages
    assert (damage.place, damage.runs) == ("runs/a/iterations/00000.json", ["a"])
    assert "iterations/00001.json, the record after it, was written after" in damage.what
    assert "restore the record from a copy" in damage.what


def test_unfinished_run_has_no_broken_seals(local: Store) -> None:
    begin(local)
    local.runs.set_state("r", "running")
    for iteration in range(3):
        work(local, iterations=range(iteration, iteration + 1))
        seals = local.runs.seals("r")
        assert seals.broken == {}
        assert list(seals.absent) == [f"iterations/{iteration:05d}.json"]
        assert "has not ended" in seals.absent[f"iterations/{iteration:05d}.json"]


@pytest.mark.parametrize("killed_in", [range(0), range(1), range(2), range(3)])
@pytest.mark.parametrize("keys", ["k", "other"])
def test_resumed_and_killed_run_stays_sealed(local: Store, keys: str, killed_in: range) -> None:
    """With other keys, as from other code, an earlier record is replaced; later ones seal nothing until rewritten."""
    completed(local)
    before = {path: path.stat().st_mtime_ns for path in file(local, "iterations").iterdir()}
    with local.runs.hold("r"):
        local.runs.set_state("r", "running")
        work(local, keys, killed_in)
        assert local.runs.seals("r").broken == {}
    with local.runs.hold("r"):
        work(local, keys)
        local.runs.set_state("r", "completed")
    assert local.runs.seals("r") == Seals()
    is_untouched = before == {path: path.stat().st_mtime_ns for path in file(local, "iterations").iterdir()}
    assert is_untouched == (keys == "k")


def strip(store: Store, name: str = "r") -> None:
    """Rewrite the run's records without seals."""
    for path in (Path(store.url) / "runs" / name / "iterations").iterdir():
        path.write_text(json.dumps({"stages": json.loads(path.read_text())["stages"]}))
    state = Path(store.url) / "runs" / name / "state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "head"}))


def test_run_seals_its_records_without_seals(local: Store) -> None:
    before = completed(local).runs.iterations("r")
    strip(local)
    seals = local.runs.seals("r")
    assert local.runs.iterations("r") == before
    assert seals.broken == {}
    assert set(seals.absent) == {"run.json", *(f"iterations/{n:05d}.json" for n in range(3))}
    with local.runs.hold("r"):
        work(local)
        local.runs.set_state("r", "completed")
    assert local.runs.seals("r") == Seals()


class TestCopies:
    @pytest.fixture
    def other(self, tmp_path: Path) -> Store:
        return Store(str(tmp_path / "other"))

    def test_copy_is_sealed_like_its_source(self, local: Store, other: Store, make_run: MakeRun) -> None:
        make_run(local, "a", 2)
        local.runs.set_state("a", "completed")
        copy_run(open_location(local.url), "a", open_location(other.url))
        assert other.runs.seals("a") == Seals()

    def test_copy_of_unsealed_run_stays_unsealed(self, local: Store, other: Store, make_run: MakeRun) -> None:
        make_run(local, "a", 2)
        local.runs.set_state("a", "completed")
        strip(local, "a")
        copy_run(open_location(local.url), "a", open_location(other.url))
        assert other.runs.seals("a").absent == local.runs.seals("a").absent

    def test_copy_onto_existing_run_is_sealed(self, local: Store, other: Store, make_run: MakeRun) -> None:
        """Its `run.json` was written twice, at different times."""
        make_run(local, "a", 2)
        make_run(other, "a", 1)
        local.runs.set_state("a", "completed")
        copy_run(open_location(local.url), "a", open_location(other.url))
        assert other.runs.seals("a") == Seals()
        assert other.runs.iterations("a") == local.runs.iterations("a")

    def test_a_broken_chain_is_not_copied(self, local: Store, other: Store, make_run: MakeRun) -> None:
        make_run(local, "a", 2)
        path = Path(local.url) / "runs" / "a" / "iterations" / "00000.json"
        path.write_text(path.read_text() + "\n")
        with pytest.raises(ArtifactDamagedError, match=r"runs/a/iterations/00000\.json fails its integrity check"):
            copy_run(open_location(local.url), "a", open_location(other.url))
        assert other.runs.find("a") is None
