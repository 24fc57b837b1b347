"""Tools to forge a stored run: change something, then update everything that a plain digest covers."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import load_file, save_file

from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.files import entries_of, entry_of
from starpo.ragen.store.artifacts.folders import digest_of
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import MANIFEST_NAME, FileEntry, Manifest
from starpo.tasks.loop.verify import Verification, verify_run

RUN = "mine"
Rows = list[dict[str, Any]]
Records = dict[int, dict[str, dict[str, str]]]


AFTER_START = {"stages": ["rollout", "reward", "variance_filter", "update", "evaluate"]}
"""For runs of which something else is in question than the warm start, which takes longest to compute again."""


def verify(folder: Path, **options: Any) -> Verification:
    return verify_run(Store(str(folder)), RUN, **options)


def artifact(folder: Path, iteration: int, stage: str, kind: str) -> Path:
    """Return the folder of an artifact that a stage made."""
    return folder / kind / Store(str(folder)).runs.iteration(RUN, iteration)[stage][kind]


def manifest_of(place: Path) -> Manifest:
    return Manifest.model_validate_json((place / MANIFEST_NAME).read_text())


def forge(place: Path, change: Callable[[Rows], object], **fields: Any) -> None:
    """Change a dataset's rows and everything in its manifest that would reveal it."""
    file = place / "part-00000.parquet"
    table = pq.read_table(file)
    rows = table.to_pylist()
    change(rows)
    table = pa.Table.from_pylist(rows, schema=table.schema)
    pq.write_table(table, file)
    reseal(place, content_digest=content_digest(table), num_rows=table.num_rows, **fields)


def reseal(place: Path, **fields: Any) -> None:
    """Write a manifest that is valid for the current content of its files, with these fields changed."""
    manifest = manifest_of(place)
    _seal(place, manifest, entries=[entry_of(place / entry.path, place) for entry in manifest.files], **fields)


def reseal_folder(place: Path) -> None:
    """Do the same for a folder, with whatever files it has now, and update its content digest."""
    manifest = manifest_of(place)
    (place / MANIFEST_NAME).unlink()
    entries = entries_of(place)
    _seal(place, manifest, entries, content_digest=digest_of(entries))


def _seal(place: Path, manifest: Manifest, entries: list[FileEntry], **fields: Any) -> None:
    sealed = manifest.model_copy(update={"files": tuple(entries), **fields}).sealed()
    (place / MANIFEST_NAME).write_text(sealed.model_dump_json())


def claim(place: Path, section: str, name: str, value: object) -> None:
    """Change an entry of the provenance, which no digest covers."""
    manifest = json.loads((place / MANIFEST_NAME).read_text())
    manifest["provenance"].setdefault(section, {})[name] = value
    (place / MANIFEST_NAME).write_text(json.dumps(manifest))


def tensors(place: Path, file: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change tensors of a checkpoint."""
    values = load_file(place / file)
    change(values)
    save_file(values, place / file)


def rekey(folder: Path, iteration: int, stage: str, /, **fields: Any) -> None:
    """Change the work in the manifests of a recorded stage's artifacts, store them under its key, and record that."""
    records = read_records(folder)
    for kind, key in list(records[iteration][stage].items()):
        place = folder / kind / key
        manifest = manifest_of(place).model_copy(update=fields)
        forged = stage_key(manifest.stage, manifest.settings, manifest.inputs, manifest.seed, manifest.code)
        if forged != key:
            shutil.rmtree(folder / kind / forged, ignore_errors=True)
            shutil.copytree(place, folder / kind / forged)
        reseal(folder / kind / forged, **fields, key=forged)
        records[iteration][stage][kind] = forged
    write_records(folder, records)


def read_records(folder: Path) -> Records:
    return Store(str(folder)).runs.iterations(RUN)


def write_records(folder: Path, records: Records) -> None:
    """Write all records of the run, each sealed with the digest of the one before it, and the head."""
    run = folder / "runs" / RUN
    shutil.rmtree(run / "iterations")
    (run / "iterations").mkdir()
    before = _digest(run / "run.json")
    for iteration, stages in sorted(records.items()):
        file = run / "iterations" / f"{iteration:05d}.json"
        file.write_text(json.dumps({"previous": before, "stages": stages}))
        before = _digest(file)
    edit_json(run / "state.json", lambda state: state.update(head=before))


def change_records(folder: Path, change: Callable[[Records], object]) -> None:
    """Change the records and reseal them."""
    records = read_records(folder)
    change(records)
    write_records(folder, records)


def change_run(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change `run.json` and reseal the records."""
    edit_json(folder / "runs" / RUN / "run.json", change)
    write_records(folder, read_records(folder))


def edit_json(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def strip_seals(folder: Path) -> None:
    """Rewrite the records without seals."""
    run = folder / "runs" / RUN
    for iteration, stages in read_records(folder).items():
        (run / "iterations" / f"{iteration:05d}.json").write_text(json.dumps({"stages": stages}))
    edit_json(run / "state.json", lambda state: state.pop("head"))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
