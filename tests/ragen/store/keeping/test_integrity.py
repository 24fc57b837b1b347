"""Every file is read again, so damage is found anywhere; the runs that need a damaged artifact are named."""

import hashlib
import io
import json
from collections.abc import Callable

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.integrity import Damage, verify_store
from starpo.ragen.store.remote.opening import open_location

MakeRun = Callable[..., list[tuple[str, str]]]


def damages(store: Store) -> list[Damage]:
    return verify_store(open_location(store.url)).damages


def data_file(store: Store, kind: str, key: str) -> str:
    return f"{kind}/{key}/{store.manifest(kind, key).files[-1].path}"


def test_a_sound_store(store: Store, make_run: MakeRun) -> None:
    made = make_run(store, "a")
    reports: list[tuple[int, int]] = []
    result = verify_store(open_location(store.url), lambda done, total: reports.append((done, total)))
    assert result.damages == []
    assert result.num_artifacts == len(made) == len(reports)
    assert reports[-1] == (result.size_bytes, result.size_bytes)
    assert reports == sorted(reports)


@pytest.mark.ci
@pytest.mark.parametrize("offset", [0, 4, -1])
def test_one_flipped_bit_anywhere(store: Store, make_run: MakeRun, offset: int) -> None:
    made = make_run(store, "a", 1)
    make_run(store, "b", 1, keep=0.25)
    kind, key = made[1]
    store.read_table(kind, key)  # read before: code that remembers verified files would skip it
    location, path = open_location(store.url), data_file(store, kind, key)
    data = bytearray(location.read(path))
    data[offset] ^= 1
    location.replace(path, bytes(data))
    what = "the content of part-00000.parquet has changed since it was written (sha256 differs)"
    assert damages(store) == [Damage(f"{kind}/{key}", what, ["a", "b"])]


def test_missing_and_truncated_files(store: Store, make_run: MakeRun) -> None:
    (_, _), turns, rewards, *_ = make_run(store, "a", 1)
    location = open_location(store.url)
    location.delete([data_file(store, *turns)])
    path = data_file(store, *rewards)
    location.replace(path, location.read(path)[:-3])
    faults = {damage.place: damage.what for damage in damages(store)}
    assert faults["/".join(turns)] == "the file part-00000.parquet is missing"
    assert "bytes, " in faults["/".join(rewards)]


def test_edited_unneeded_manifest_is_damage(store: Store, make_run: MakeRun) -> None:
    made = make_run(store, "a", 1)
    make_run(store, "b", 1, keep=0.25)
    location = open_location(store.url)
    location.delete(file.path for file in location.files("runs/a"))
    kind, key = made[-1]
    path = f"{kind}/{key}/manifest.json"
    location.replace(path, json.dumps({**json.loads(location.read(path)), "seed": 9}).encode())
    (damage,) = damages(store)
    assert damage.place == f"{kind}/{key}"
    assert "changed after it was written" in damage.what
    assert damage.runs == []


@pytest.mark.parametrize("name", ["run.json", "iterations/00000.json"])
def test_records_that_cannot_be_read(store: Store, make_run: MakeRun, name: str) -> None:
    """Everything else is still checked."""
    kind, key = make_run(store, "a", 1)[1]
    make_run(store, "b", 1, keep=0.25)
    location = open_location(store.url)
    location.replace(f"runs/a/{name}", b"{")
    location.delete([data_file(store, kind, key)])
    first, second = damages(store)
    assert first.place == "runs/a"
    assert f"{name} cannot be read" in first.what
    assert second.place == f"{kind}/{key}"


def test_a_wrong_address_does_not_pass(tmp_path: object) -> None:
    with pytest.raises(StoreError, match="check the store's address"):
        verify_store(open_location(str(tmp_path)))


@pytest.mark.ci
def test_a_file_that_no_manifest_names(store: Store, make_run: MakeRun) -> None:
    kind, key = make_run(store, "a", 1)[-1]
    location = open_location(store.url)
    location.replace(f"{kind}/{key}/pytorch_model.bin", b"weights")
    (damage,) = damages(store)
    assert damage.place == f"{kind}/{key}"
    assert "its folder has the file 'pytorch_model.bin', which its manifest does not list" in damage.what
    location.delete([f"{kind}/{key}/pytorch_model.bin"])
    if location.is_attempt("0123456789ab/x"):  # left by a killed writer under its own name; no reader fetches it
        location.replace(f"{kind}/{key}/0123456789ab/model.safetensors", b"weights")
    assert damages(store) == []


def test_wrong_checkpoint_content_digest_is_damage(store: Store, make_run: MakeRun) -> None:
    """The file's SHA-256 and the manifest's own digest are forged to match."""
    kind, key = make_run(store, "a", 1)[-1]
    location, manifest = open_location(store.url), store.manifest(kind, key)
    entry = manifest.files[0]
    data = b"other weights"
    location.replace(f"{kind}/{key}/{entry.path}", data)
    forged = entry.model_copy(update={"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)})
    sealed = manifest.model_copy(update={"files": (forged, *manifest.files[1:])}).sealed()
    location.replace(f"{kind}/{key}/manifest.json", sealed.model_dump_json().encode())
    location.forget(f"{kind}/{key}/manifest.json")
    (damage,) = damages(store)
    assert damage.what == "the content digest in its manifest does not match its files"


def test_rows_changed_and_files_digested_anew(store: Store, make_run: MakeRun) -> None:
    """The manifest's file digests and its own fit the new rows; the digest of the rows does not."""
    made = make_run(store, "a", 1)
    kind, key = next((kind, key) for kind, key in made if kind == "rewards")
    location, path = open_location(store.url), data_file(store, kind, key)
    table = pq.read_table(io.BytesIO(location.read(path)))
    buffer = io.BytesIO()
    column = table.schema.get_field_index("total")
    pq.write_table(table.set_column(column, table.field(column), pc.negate(table["total"])), buffer)
    location.replace(path, buffer.getvalue())
    manifest = store.manifest(kind, key)
    entry = manifest.files[0].model_copy(
        update={"sha256": hashlib.sha256(buffer.getvalue()).hexdigest(), "size_bytes": len(buffer.getvalue())}
    )
    made_anew = manifest.model_copy(update={"files": (entry,)}).sealed()
    location.replace(f"{kind}/{key}/manifest.json", made_anew.model_dump_json().encode())
    assert damages(store) == [
        Damage(f"{kind}/{key}", "the content digest in its manifest is not that of its rows", ["a"])
    ]


@pytest.mark.parametrize("is_needed", [True, False])
def test_edited_dropped_manifest_is_damage(store: Store, make_run: MakeRun, is_needed: bool) -> None:
    kind, key = make_run(store, "a", 1)[-1]
    dropped = store.drop(kind, key)
    (first, *others) = dropped.files
    forged = dropped.model_copy(update={"files": (first.model_copy(update={"sha256": "0" * 64}), *others)}).sealed()
    location = open_location(store.url)
    location.replace(f"{kind}/{key}/dropped.json", forged.model_dump_json().encode())
    if not is_needed:
        location.delete(file.path for file in location.files("runs/a"))
    (damage,) = damages(store)
    assert damage == Damage(
        f"{kind}/{key}", "the content digest in its manifest does not match its files", ["a"] if is_needed else []
    )
    with pytest.raises(ArtifactDamagedError, match="content digest in its manifest does not match"):
        store.lasting_manifest(kind, key)
