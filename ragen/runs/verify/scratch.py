"""A temporary store that holds the inputs of the current stage, takes its outputs, and is deleted at the end.

    original store --links--> Scratch.store --stage--> outputs, to be compared with Scratch.read(...)

The store under verification is only read, and only through this module, so that not even a quarantine is written into
it. Artifacts are linked, not copied. If an original cannot be read, the artifact recomputed under the same key may
stand in for it, so that one lost artifact does not hide everything after it.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from starpo.ragen.agents.policy.adapter import base_of
from starpo.ragen.core.errors import StarPOError, first_line
from starpo.ragen.runs.stored_images import image_kinds
from starpo.ragen.runs.verify.footers import footer_fault
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import DATASETS
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import MANIFEST_NAME, Manifest


@dataclass
class Stored:
    """Artifact under verification, as far as it can be read.

    Attributes:
        manifest: Its manifest; None if it is missing or was edited.
        table: Its rows; None if it is not a dataset or cannot be read.
        is_dropped: Whether its files were dropped and only the manifest kept.
        fault: What is wrong with it; empty if it is as written.
    """

    manifest: Manifest | None = None
    table: pa.Table | None = None
    is_dropped: bool = False
    fault: str = ""


class Scratch:
    """Temporary store in front of another one. A context manager that removes everything on exit.

    Attributes:
        url: Address of the temporary store.
        store: The temporary store.
    """

    def __init__(self, original: Store) -> None:
        self._original = original
        self._folder = Path(tempfile.mkdtemp(prefix="ragen-verify-"))
        self._stand_ins: set[tuple[str, str]] = set()
        self._originals = Store(str(self._folder / "originals"))  # holds links only while an artifact is read
        self.url = str(self._folder / "work")
        self.store = Store(self.url)
        self.store.answers.behind = original.answers  # a comparison sends no new questions to a judge

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def manifest(self, kind: str, key: str) -> Manifest | None:
        """Return the manifest of an artifact in the original store, dropped or not; None if missing or edited."""
        try:
            return self._original.lasting_manifest(kind, key)
        except StarPOError:
            return None

    def read(self, kind: str, key: str) -> Stored:
        """Read and check an artifact of the original store: manifest, bytes, rows, schema, digests and footers."""
        stored = Stored()
        try:
            dropped = self._original.dropped(kind, key)
            stored.is_dropped = dropped is not None
            manifest = stored.manifest = dropped or self._original.manifest(kind, key)
            if not stored.is_dropped:
                self._link(self._originals, manifest)
                if kind in DATASETS:
                    stored.table = self._originals.read_table(kind, key)
                    if content_digest(stored.table) != manifest.content_digest:
                        stored.fault = f"the content digest of {kind}/{key} is not that of its rows"
                    folder = _folder_of(self._originals, kind, key)
                    if fault := footer_fault([folder / entry.name for entry in manifest.files], stored.table):
                        stored.fault = f"{kind}/{key} contradicts its rows: {fault}"
                for contradiction in self._original.contradictions(manifest):
                    stored.fault = f"{kind}/{key} contradicts its manifest: {contradiction}"
            if stage_key(manifest.stage, manifest.settings, manifest.inputs, manifest.seed, manifest.code) != key:
                stored.fault = f"{kind}/{key} has another key than the work that its manifest describes"
        except StarPOError as error:
            stored.fault = first_line(error)
        finally:
            _remove(self._originals, kind, key)
        return stored

    def has(self, kind: str, key: str) -> bool:
        """Whether the artifact is in the temporary store."""
        return _folder_of(self.store, kind, key).exists()

    def provide(self, kind: str, key: str) -> None:
        """Make an artifact of the original store, or its stand-in, available as an input.

        Raises:
            ArtifactMissingError: If it is not stored and has no stand-in.
            ArtifactDamagedError: If it differs from what was written and has no stand-in.
        """
        if not self.has(kind, key):
            self._link(self.store, self._original.manifest(kind, key))
        base = base_of(_folder_of(self.store, kind, key))
        if base is not None:  # adapters are usable only with their base's weights
            self.provide(kind, base)
        for companion in image_kinds(self.store.manifest(kind, key)):
            self.provide(companion, key)

    def keep_as_stand_in(self, kind: str, key: str) -> None:
        """Keep a recomputed artifact as an input of later stages."""
        self._stand_ins.add((kind, key))

    def release(self, kind: str, key: str) -> None:
        """Remove an artifact that no later stage needs, even if it is a stand-in."""
        self._stand_ins.discard((kind, key))
        self.discard(kind, key)

    def discard(self, kind: str, key: str) -> None:
        """Remove an artifact, recomputed or linked, unless it is a stand-in."""
        if (kind, key) not in self._stand_ins:
            _remove(self.store, kind, key)

    def _link(self, store: Store, manifest: Manifest) -> None:
        files = Path(self._original.local_folder(manifest.kind, manifest.key))
        folder = _folder_of(store, manifest.kind, manifest.key)
        for entry in manifest.files:
            for name in {entry.name, entry.path}:  # they differ only on object storage
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(files / entry.name)
        (folder / MANIFEST_NAME).write_text(manifest.model_dump_json(), encoding="utf-8")


def _folder_of(store: Store, kind: str, key: str) -> Path:
    return Path(store.url) / kind / key


def _remove(store: Store, kind: str, key: str) -> None:
    shutil.rmtree(_folder_of(store, kind, key), ignore_errors=True)
