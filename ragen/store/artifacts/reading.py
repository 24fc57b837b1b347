"""Artifacts as they are read: whether they exist, their manifests, and their files, verified.

    kind, key -> manifest.json or dropped.json -> Manifest -> folder_of, file_of: verified; files_of: in place

Files are hashed once per process, and again after they were touched. Remote ones are downloaded into a cache.
"""

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from starpo.ragen.store.artifacts.files import differences, entry_of, states_of
from starpo.ragen.store.artifacts.looking import contradictions, digest_faults, faults
from starpo.ragen.store.artifacts.manifests import ManifestFault, parse_manifest
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.remote.committing import DROPPED_NAME
from starpo.ragen.store.remote.location import NUM_TRANSFERS, Location
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.manifest import MANIFEST_NAME, FileEntry, Manifest

_VERIFIED: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()
"""(manifest digest, `states_of` its files) of artifacts that this process has written or verified."""


class StoredArtifacts:
    """The artifacts of one store, to be read."""

    def __init__(self, location: Location) -> None:
        self._location = location

    @property
    def is_on_this_machine(self) -> bool:
        """Whether its files lie in a folder of this machine, perhaps a mounted one: reading costs no request."""
        return self._location.folder_in_place("") is not None

    def has(self, kind: str, key: str) -> bool:
        """Whether the artifact exists. Damage is detected on reading, not here."""
        return MANIFEST_NAME in self._manifests(kind, key)

    def was_made(self, kind: str, key: str) -> bool:
        """Whether the artifact exists or has been dropped. In both cases its work need not be done again."""
        return not {MANIFEST_NAME, DROPPED_NAME}.isdisjoint(self._manifests(kind, key))

    def was_missed(self, kind: str, key: str) -> bool:
        """Whether the last lookup in a remote store found neither the artifact nor a dropped one. `commit` detects one
        that was stored since."""
        return self._location.was_missed(f"{kind}/{key}")

    def manifest(self, kind: str, key: str) -> Manifest:
        """Return an artifact's manifest. A remote one is fetched once per process; whether it still exists is checked
        by `has`.

        Raises:
            ArtifactMissingError: If there is no such artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        path = path_of(kind, key, MANIFEST_NAME)
        try:
            text = self._location.read_lasting(path)
        except FileNotFoundError as error:
            if self.dropped(kind, key) is not None:
                raise ArtifactMissingError(
                    f"the artifact {kind}/{key} was dropped from the store {self._location.name}; its manifest is kept."
                    "\nRecreate it from its inputs: for a checkpoint, run `starpo checkpoint RUN --iteration N`."
                ) from error
            raise ArtifactMissingError(
                f"no artifact {kind}/{key} in the store {self._location.name}: there is no {MANIFEST_NAME}.\n"
                "Rerun the flow that produces it, or check the store's address and the key."
            ) from error
        return self._parsed(kind, key, MANIFEST_NAME, text)

    def copied_manifest(self, kind: str, key: str) -> Manifest:
        """Return the manifest of an artifact that exists or has been dropped, to show it; of a remote one this
        machine's copy, if there is one. The artifact may have been deleted or made again since.

        Raises:
            ArtifactMissingError: If there never was such an artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        path = path_of(kind, key, MANIFEST_NAME)
        try:
            return parse_manifest(kind, key, MANIFEST_NAME, self._location.read_copied(path))
        except FileNotFoundError:
            return self.lasting_manifest(kind, key)
        except ManifestFault:  # perhaps of the copy alone
            self._location.forget(path)
            return self.manifest(kind, key)

    def dropped(self, kind: str, key: str) -> Manifest | None:
        """Return the manifest of a dropped artifact; None if the artifact exists or was never stored.

        Raises:
            ArtifactDamagedError: If that manifest is not what was written.
        """
        names = self._manifests(kind, key)
        if MANIFEST_NAME in names or DROPPED_NAME not in names:
            return None
        try:
            text = self._location.read(path_of(kind, key, DROPPED_NAME))
        except FileNotFoundError:
            return None
        manifest = self._parsed(kind, key, DROPPED_NAME, text)
        for what in digest_faults(manifest):  # no file can contradict it
            raise self.damaged(kind, key, what)
        return manifest

    def lasting_manifest(self, kind: str, key: str) -> Manifest:
        """Return the manifest of an artifact that exists or has been dropped.

        Raises:
            ArtifactMissingError: If there never was such an artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        return self.dropped(kind, key) or self.manifest(kind, key)

    def faults(self, manifest: Manifest) -> list[str]:
        """List differences from what was written, after reading all files; see `looking.faults`."""
        return faults(self._location, manifest)

    def contradictions(self, manifest: Manifest) -> list[str]:
        """List contradictions between an artifact and its manifest that can be found without reading a file.

        Examples are a file that no manifest names, or a folder's content digest that does not match its files.
        """
        return contradictions(self._location, manifest)

    def files_of(self, manifest: Manifest) -> list[Path | RangeFile]:
        """Return the artifact's files in place, to be read in part; nothing is hashed.

        Raises:
            ArtifactDamagedError: If a local file is missing, or has another size than was written. (A remote file is
                not checked before it is read.)
        """
        files: list[Path | RangeFile] = []
        for entry in manifest.files:
            path = f"{manifest.kind}/{manifest.key}/{entry.path}"
            try:
                file, size_bytes = self._location.opened(path, entry.size_bytes)
            except FileNotFoundError as error:
                raise self._missing(manifest, entry.name) from error
            if size_bytes != entry.size_bytes:
                what = f"{entry.name} has {size_bytes} bytes, expected {entry.size_bytes}"
                raise self.damaged(manifest.kind, manifest.key, what)
            files.append(file)
        return files

    def file_of(self, manifest: Manifest, name: str) -> bytes:
        """Read one file of an artifact, verified; the others are neither fetched nor hashed.

        Raises:
            ArtifactMissingError: If the artifact has no such file.
            ArtifactDamagedError: If the file is missing, or its content is not what was written.
        """
        kind, key = manifest.kind, manifest.key
        entry = next((entry for entry in manifest.files if entry.name == name), None)
        if entry is None:
            names = ", ".join(entry.name for entry in manifest.files)
            raise ArtifactMissingError(f"{kind}/{key} has no file {name}; it has: {names}")
        try:
            data = self._location.read(f"{kind}/{key}/{entry.path}")
        except FileNotFoundError as error:
            raise self._missing(manifest, name) from error
        for what in differences(entry, hashlib.sha256(data).hexdigest(), len(data)):
            raise self.damaged(kind, key, what)
        return data

    def folder_of(self, manifest: Manifest) -> Path:
        """Return a folder on this machine with the artifact's files under their own names, verified.

        Remote artifacts are downloaded into a cache, `~/.cache/starpo`, which may be deleted at any time.

        Raises:
            ArtifactDamagedError: If a file is missing, or its content is not what was written.
        """
        copy = self._location.copy_of(f"{manifest.kind}/{manifest.key}", manifest.manifest_digest)
        if copy is not None:
            try:
                self._verify(copy, manifest)
                return copy
            except ArtifactDamagedError:
                if not self._location.forget_copy(manifest.manifest_digest):
                    raise
        return self._fetch(manifest)  # a damaged copy does not mean a damaged artifact

    def damaged(self, kind: str, key: str, what: str) -> ArtifactDamagedError:
        """Return the error for an artifact that is not what was written."""
        error = ArtifactDamagedError(
            f"the artifact {kind}/{key} in {self._location.name} is damaged: {what}.\n"
            f"Restore it from a copy, or delete {self._location.name.rstrip('/')}/{kind}/{key} "
            "and run the flow again, which recreates it from its inputs."
        )
        error.what = what
        return error

    def _manifests(self, kind: str, key: str) -> list[str]:
        """List which manifests an artifact has; no file is read."""
        return self._location.manifests(f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}")

    def _parsed(self, kind: str, key: str, name: str, text: bytes) -> Manifest:
        try:
            return parse_manifest(kind, key, name, text)
        except ManifestFault as fault:
            raise self.damaged(kind, key, str(fault)) from fault

    def _remember(self, folder: Path, manifest: Manifest) -> None:
        """Note that the files in this folder are what was written, and need not be hashed again."""
        _VERIFIED.add((manifest.manifest_digest, states_of(folder, manifest.files)))

    def _verify(self, folder: Path, manifest: Manifest) -> None:
        try:
            verified = (manifest.manifest_digest, states_of(folder, manifest.files))
        except FileNotFoundError as error:
            raise self._missing(manifest, Path(error.filename).relative_to(folder).as_posix()) from error
        if verified in _VERIFIED:
            return
        for entry in manifest.files:
            try:
                actual = entry_of(folder / entry.name, folder)
            except FileNotFoundError as error:
                raise self._missing(manifest, entry.name) from error
            except OSError as error:
                raise self._location.failure("read", f"{manifest.kind}/{manifest.key}/{entry.name}", error) from error
            for what in differences(entry, actual.sha256, actual.size_bytes):
                raise self.damaged(manifest.kind, manifest.key, what)
        _VERIFIED.add(verified)

    def _fetch(self, manifest: Manifest) -> Path:
        from starpo.ragen.store.remote import local_cache

        try:
            part = local_cache.scratch_folder()
            try:
                self._download(manifest, part)
                copy = local_cache.adopt(part, manifest.manifest_digest)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise self._location.failure("read", f"{manifest.kind}/{manifest.key}", error) from error
        self._verify(copy, manifest)
        return copy

    def _download(self, manifest: Manifest, folder: Path) -> None:
        """Download the artifact's files under their own names into a local folder, and verify them there."""

        def download(entry: FileEntry) -> None:
            target = folder / entry.name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._location.download(f"{manifest.kind}/{manifest.key}/{entry.path}", target, entry.size_bytes)
            except FileNotFoundError as error:
                raise self._missing(manifest, entry.name) from error

        with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
            for done in [pool.submit(download, entry) for entry in manifest.files]:
                done.result()
        self._verify(folder, manifest)

    def _missing(self, manifest: Manifest, name: str) -> StoreError:
        """Return the error for a missing file. Another process may have deleted, dropped or replaced the artifact since
        its manifest was read; it is damaged only if that manifest is still there."""
        self._location.forget(path_of(manifest.kind, manifest.key, MANIFEST_NAME))
        try:
            current = self.manifest(manifest.kind, manifest.key)
        except ArtifactMissingError as error:
            return error
        if current.manifest_digest == manifest.manifest_digest:
            return self.damaged(manifest.kind, manifest.key, f"the file {name} is missing")
        return StoreError(
            f"the artifact {manifest.kind}/{manifest.key} in {self._location.name} was recreated by another "
            "process while this one was using it; run the same command again"
        )


def path_of(kind: str, key: str, name: str) -> str:
    """Return the path of an artifact's file in its store."""
    return f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}/{name}"
