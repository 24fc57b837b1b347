"""Immutable folders `<kind>/<key>/` with a manifest: staged, committed atomically, verified on reading.

A local artifact is written to `tmp/<unique>/` and becomes visible by one rename of that folder. Its files are synced to
disk before that: a power failure leaves an artifact intact or removes it completely, and its work is done again. Object
storage has no such rename: there every attempt writes its files under unique names, and the manifest, put last and only
if there is none, makes them the artifact. Either way: without a manifest there is no artifact; of several writers one
wins and the others use its result; a killed writer leaves nothing visible.

An artifact that can be derived again may be dropped: its files are deleted, and its manifest stays as `dropped.json`.
It describes the artifact, and its digest proves that a derived replacement is the original. An artifact may also be
dropped from birth: its files were hashed, and never stored.

    Artifacts.stage -> files -> Artifacts.commit -> manifest.json       Artifacts.folder_of -> verified files
                      hashes -> Artifacts.commit_dropped -> dropped.json
"""

import errno
import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, DerivationError, StoreError
from starpo.ragen.store.artifacts.committing import DROPPED_NAME, commit_locally, commit_remotely, text_of
from starpo.ragen.store.artifacts.files import differences, digests_of, entry_of, states_of
from starpo.ragen.store.artifacts.looking import contradictions, faults
from starpo.ragen.store.artifacts.manifests import ManifestFault, parse_manifest
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.remote import local_cache
from starpo.ragen.store.remote.failures import os_error_of
from starpo.ragen.store.remote.location import NUM_TRANSFERS, Location, sync
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.manifest import MANIFEST_NAME, FileEntry, Manifest

_VERIFIED: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()
"""(manifest digest, `states_of` its files) of artifacts that this process has written or verified: files are hashed
once per process, and again after they were touched."""

_log = logging.getLogger(__name__)


class Artifacts:
    """The artifacts of one store."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._last_listing: dict[tuple[str, str], tuple[str, ...]] = {}

    def has(self, kind: str, key: str) -> bool:
        """Whether the artifact exists. Damage is detected on reading, not here."""
        return MANIFEST_NAME in self._names(kind, key)

    def was_made(self, kind: str, key: str) -> bool:
        """Whether the artifact exists or has been dropped. In both cases its work need not be done again."""
        return not {MANIFEST_NAME, DROPPED_NAME}.isdisjoint(self._names(kind, key))

    def was_missed(self, kind: str, key: str) -> bool:
        """Whether this object's last lookup in a remote store found neither the artifact nor a dropped one. `commit`
        detects one that was stored since."""
        return self._last_listing.get((kind, key)) == ()

    def manifest(self, kind: str, key: str) -> Manifest:
        """Return an artifact's manifest. A remote one is fetched once per process; whether it still exists is checked
        by `has`.

        Raises:
            ArtifactMissingError: If there is no such artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        path = _manifest_path(kind, key)
        try:
            text = self._location.read_lasting(path)
        except FileNotFoundError as error:
            if self.dropped(kind, key) is not None:
                raise ArtifactMissingError(
                    f"the artifact {kind}/{key} was dropped from the store {self._location.name}; its manifest is kept."
                    "\nRecreate it from its inputs: for a checkpoint, run `ragen checkpoint RUN --iteration N`."
                ) from error
            raise ArtifactMissingError(
                f"no artifact {kind}/{key} in the store {self._location.name}: there is no {MANIFEST_NAME}.\n"
                "Rerun the flow that produces it, or check the store's address and the key."
            ) from error
        return self._parsed(kind, key, MANIFEST_NAME, text)

    def dropped(self, kind: str, key: str) -> Manifest | None:
        """Return the manifest of a dropped artifact; None if the artifact exists or was never stored.

        Raises:
            ArtifactDamagedError: If that manifest is not what was written.
        """
        names = self._names(kind, key)
        if MANIFEST_NAME in names or DROPPED_NAME not in names:
            return None
        try:
            text = self._location.read(_path(kind, key, DROPPED_NAME))
        except FileNotFoundError:
            return None
        return self._parsed(kind, key, DROPPED_NAME, text)

    def lasting_manifest(self, kind: str, key: str) -> Manifest:
        """Return the manifest of an artifact that exists or has been dropped.

        Raises:
            ArtifactMissingError: If there never was such an artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        return self.dropped(kind, key) or self.manifest(kind, key)

    def drop(self, kind: str, key: str) -> Manifest:
        """Delete the files of an artifact that can be derived again, and keep its manifest as `dropped.json`.

        The copy of the manifest is written first, then `manifest.json` is deleted, then the files. A killed process
        leaves either the intact artifact, or a dropped one with some files, which dropping it again removes. Storing
        it again restores it.

        Raises:
            ArtifactMissingError: If it neither exists nor was dropped.
        """
        manifest = self.dropped(kind, key)
        if manifest is None:
            manifest = self.manifest(kind, key)
            self._location.replace(_path(kind, key, DROPPED_NAME), text_of(manifest).encode())
            if self._location.local is not None:
                folder = self._location.local / kind / key
                sync(folder / DROPPED_NAME)
                sync(folder)
            self._location.delete([_manifest_path(kind, key)])
        if set(self._location.names(f"{kind}/{key}")) - {DROPPED_NAME}:
            self._location.delete(_path(kind, key, entry.path) for entry in manifest.files)
            self._location.remove_empty(f"{kind}/{key}")
        if self._location.local is None:
            local_cache.forget(manifest.manifest_digest)
        return manifest

    def _names(self, kind: str, key: str) -> list[str]:
        """List an artifact's folder; no file is read."""
        names = self._location.names(f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}")
        if self._location.local is None:
            self._last_listing[kind, key] = tuple(name for name in names if name in (MANIFEST_NAME, DROPPED_NAME))
        return names

    def _parsed(self, kind: str, key: str, name: str, text: bytes) -> Manifest:
        try:
            return parse_manifest(kind, key, name, text)
        except ManifestFault as fault:
            raise self.damaged(kind, key, str(fault)) from fault

    @contextmanager
    def stage(self) -> Iterator[Path]:
        """Context manager: an empty folder on this machine for an artifact's files; removed at the end if not
        committed."""
        try:
            if self._location.local is None:
                folder = local_cache.scratch_folder()
            else:
                folder = self._location.local / "tmp" / uuid.uuid4().hex
                folder.mkdir(parents=True)
        except OSError as error:
            raise self._location.failure("write", "tmp", error) from error
        try:
            yield folder
        except Exception as error:
            cause = os_error_of(error)
            if cause is None or (cause is error and not self._is_of_the_disk(cause, folder)):
                raise
            raise self._location.failure("write", f"tmp/{folder.name}", cause) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _is_of_the_disk(self, error: OSError, folder: Path) -> bool:
        """Whether the error concerns the folder for artifacts. Code that makes an artifact may raise others, from its
        own files or a network."""
        if isinstance(error.filename, str | bytes | os.PathLike):
            place = Path(os.fsdecode(error.filename)).absolute()
            return place.is_relative_to(self._location.local or folder.parent)
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)

    def sealed(self, manifest: Manifest, entries: Iterable[FileEntry]) -> Manifest:
        """Return a manifest with its files, at the paths where `commit` puts them, and with its own digest.

        Args:
            manifest: The manifest without `files`.
            entries: Its files, from `ragen.store.artifacts.files.entries_of`.
        """
        if self._location.local is None:
            attempt = uuid.uuid4().hex[:12]
            entries = [entry.model_copy(update={"path": f"{attempt}/{entry.name}"}) for entry in entries]
        return manifest.model_copy(update={"files": tuple(entries)}).sealed()

    def commit(self, folder: Path, manifest: Manifest) -> Manifest:
        """Make a staged folder an artifact.

        Args:
            folder: From `stage`; every file in it belongs to the artifact.
            manifest: From `sealed`.

        Returns:
            The manifest that is now in the store: ours, or that of an earlier writer.
        """
        stored = self._commit(folder, manifest)
        if self._location.local is not None:
            if stored is manifest:
                final = self._location.local / manifest.kind / manifest.key
                _VERIFIED.add((manifest.manifest_digest, states_of(final, manifest.files)))
            return stored
        if digests_of(stored.files) == digests_of(manifest.files):  # else its content differs
            self._keep(folder, stored)
        return stored

    def commit_dropped(self, manifest: Manifest) -> Manifest:
        """Make a manifest an artifact that is dropped from birth.

        Args:
            manifest: Sealed, with the files that the artifact would have.

        Returns:
            The manifest that is now in the store, of an artifact or a dropped one: ours, or that of an earlier writer.

        Raises:
            DerivationError: If the earlier one has other content.
        """
        if self._location.local is None:
            path = _path(manifest.kind, manifest.key, DROPPED_NAME)
            is_ours = self._location.create(path, text_of(manifest).encode())
        else:
            with self.stage() as folder:
                is_ours = commit_locally(self._location.local, folder, manifest, is_dropped=True)
        if is_ours:
            return manifest
        earlier = self.lasting_manifest(manifest.kind, manifest.key)
        self.expect_same(earlier, manifest)
        return earlier

    def expect_same(self, earlier: Manifest, again: Manifest) -> None:
        """Check that repeated work gave the same content.

        Raises:
            DerivationError: If it did not.
        """
        if earlier.content_digest != again.content_digest:
            raise DerivationError(
                f"{again.kind}/{again.key} was made again, and its content digest is {again.content_digest[:12]}..., "
                f"but {earlier.content_digest[:12]}... is recorded in {self._location.name}. Results are bit-identical "
                "only on the same type of machine with the same versions and code; continue there. Nothing was written"
            )

    def _keep(self, folder: Path, manifest: Manifest) -> Path:
        """Make a staged folder this machine's cached copy of a remote artifact; returns its new path."""
        copy = local_cache.adopt(folder, manifest.manifest_digest)
        _VERIFIED.add((manifest.manifest_digest, states_of(copy, manifest.files)))
        return copy

    def faults(self, manifest: Manifest) -> list[str]:
        """List differences from what was written, after reading all files; see `looking.faults`."""
        return faults(self._location, manifest)

    def contradictions(self, manifest: Manifest) -> list[str]:
        """List contradictions between an artifact and its manifest that can be found without reading a file.

        Examples are a file that no manifest names, or a folder's content digest that does not match its files.
        """
        return contradictions(self._location, manifest)

    def copy_from(self, source: "Artifacts", manifest: Manifest) -> Manifest:
        """Copy an artifact from another store into this one; an existing one is kept.

        The content is verified as it is read, and again at its destination, before the manifest makes it an artifact.
        The copy's manifest differs only in the files' paths.

        Returns:
            The manifest in this store: of the copy, or of an artifact that was stored first.

        Raises:
            ArtifactDamagedError: If the source's files are not what was written.
            StoreError: If this store cannot be written, or does not keep what it receives.
        """
        copied = self.sealed(manifest, [entry.model_copy(update={"path": entry.name}) for entry in manifest.files])
        if self._location.local is None and source._location.local is not None:
            folder = source._location.local / manifest.kind / manifest.key
            source._verify(folder, manifest)
            return self._commit(folder, copied, should_check=True)
        with self.stage() as folder:
            source._download(manifest, folder)
            return self._commit(folder, copied, should_check=True)

    def files_of(self, manifest: Manifest) -> list[Path | RangeFile]:
        """Return the artifact's files in place, to be read in part; nothing is hashed.

        Raises:
            ArtifactDamagedError: If a local file is missing, or has another size than was written. (A remote file is
                not checked before it is read.)
        """
        folder = f"{manifest.kind}/{manifest.key}"
        if self._location.local is None:
            return [
                RangeFile(partial(self._location.read_range, f"{folder}/{entry.path}"), entry.size_bytes)
                for entry in manifest.files
            ]
        files: list[Path | RangeFile] = []
        for entry in manifest.files:
            file = self._location.local / folder / entry.path
            try:
                size_bytes = file.stat().st_size
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
        if self._location.local is not None:
            folder = self._location.local / manifest.kind / manifest.key
            self._verify(folder, manifest)
            return folder
        copy = local_cache.copy_of(manifest.manifest_digest)
        if copy is not None:
            try:
                self._verify(copy, manifest)
                return copy
            except ArtifactDamagedError:  # the cached copy is damaged, not the artifact
                local_cache.forget(manifest.manifest_digest)
        return self._fetch(manifest)

    def damaged(self, kind: str, key: str, what: str) -> ArtifactDamagedError:
        """Return the error for an artifact that is not what was written."""
        error = ArtifactDamagedError(
            f"the artifact {kind}/{key} in {self._location.name} is damaged: {what}.\n"
            f"Restore it from a copy, or delete {self._location.name.rstrip('/')}/{kind}/{key} "
            "and run the flow again, which recreates it from its inputs."
        )
        error.what = what
        return error

    def _commit(self, folder: Path, manifest: Manifest, *, should_check: bool = False) -> Manifest:
        """Commit and return the manifest then in the store; `should_check`: first read back what was sent to a remote
        store."""
        if self._location.local is not None:
            is_ours = commit_locally(self._location.local, folder, manifest)
        else:
            was_dropped = DROPPED_NAME in self._last_listing.pop((manifest.kind, manifest.key), (DROPPED_NAME,))
            look = self.faults if should_check else lambda _: []
            is_ours = commit_remotely(self._location, folder, manifest, look, was_dropped=was_dropped)
        return manifest if is_ours else self._take_winner(manifest)

    def _take_winner(self, ours: Manifest) -> Manifest:
        self._location.forget(_manifest_path(ours.kind, ours.key))
        winner = self.manifest(ours.kind, ours.key)
        if winner.content_digest != ours.content_digest and winner.is_deterministic and ours.is_deterministic:
            _log.warning(
                "the same work gave two results: %s/%s is stored with different content; using the stored one",
                ours.kind,
                ours.key,
            )
        return winner

    def _verify(self, folder: Path, manifest: Manifest) -> None:
        try:
            verified = (manifest.manifest_digest, states_of(folder, manifest.files))
        except FileNotFoundError as error:
            raise self._missing(manifest, Path(error.filename).relative_to(folder).as_posix()) from error
        if verified in _VERIFIED:
            return
        for entry in manifest.files:
            try:
                found = entry_of(folder / entry.name, folder)
            except FileNotFoundError as error:
                raise self._missing(manifest, entry.name) from error
            except OSError as error:
                raise self._location.failure("read", f"{manifest.kind}/{manifest.key}/{entry.name}", error) from error
            for what in differences(entry, found.sha256, found.size_bytes):
                raise self.damaged(manifest.kind, manifest.key, what)
        _VERIFIED.add(verified)

    def _fetch(self, manifest: Manifest) -> Path:
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
        self._location.forget(_manifest_path(manifest.kind, manifest.key))
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


def _manifest_path(kind: str, key: str) -> str:
    return _path(kind, key, MANIFEST_NAME)


def _path(kind: str, key: str, name: str) -> str:
    return f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}/{name}"
