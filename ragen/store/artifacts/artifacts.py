"""Immutable folders `<kind>/<key>/` with a manifest: written aside, committed in one step, verified when read.

A local artifact is written to `tmp/<unique>/` and becomes visible by one rename of that folder. Its files are on disk
by then: a power failure leaves it whole, or takes the last ones whole, and their work is done again. Object storage
has no such rename: there every attempt writes its files under a name of its own, and the manifest, put last and only
if there is none, makes them the artifact. Either way: no manifest, no artifact; of several writers one wins and the
others take its result; a killed writer leaves nothing visible.

An artifact that can be made again may be dropped: its files go, and its manifest stays as `dropped.json`, which says
what it was and proves what is made in its place.

    Artifacts.stage -> files -> Artifacts.commit -> manifest.json       Artifacts.local_folder -> verified files
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

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
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
"""(manifest digest, `states_of` its files) of what this process has written or verified: files are hashed once
a process, and again when they were touched since."""

_log = logging.getLogger(__name__)


class Artifacts:
    """The artifacts of one store."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._seen: dict[tuple[str, str], tuple[str, ...]] = {}

    def has(self, kind: str, key: str) -> bool:
        """Is there an artifact? Damage is not looked for."""
        return MANIFEST_NAME in self._names(kind, key)

    def was_made(self, kind: str, key: str) -> bool:
        """Is there an artifact, or was there one that has been dropped?"""
        return not {MANIFEST_NAME, DROPPED_NAME}.isdisjoint(self._names(kind, key))

    def was_missed(self, kind: str, key: str) -> bool:
        """Was there neither when this object last looked, at a remote store? If so, `commit` finds out what is now."""
        return self._seen.get((kind, key)) == ()

    def manifest(self, kind: str, key: str) -> Manifest:
        """An artifact's manifest. A remote one is fetched once a process; whether it is still there, `has` says.

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
                    f"the artifact {kind}/{key} was dropped from the store {self._location.name}: its manifest is kept."
                    "\nMake it again from its inputs: `ragen checkpoint RUN --iteration N` does so for a checkpoint."
                ) from error
            raise ArtifactMissingError(
                f"no artifact {kind}/{key} in the store {self._location.name}: there is no {MANIFEST_NAME}.\n"
                "Run the flow that makes it again, or check the store's address and the key."
            ) from error
        return self._parsed(kind, key, MANIFEST_NAME, text)

    def dropped(self, kind: str, key: str) -> Manifest | None:
        """The manifest of an artifact that was dropped; None: it is there, or it never was.

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
        """The manifest of an artifact that is there, or that was and has been dropped.

        Raises:
            ArtifactMissingError: If there never was such an artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        return self.dropped(kind, key) or self.manifest(kind, key)

    def drop(self, kind: str, key: str) -> Manifest:
        """Delete an artifact's files and keep its manifest as `dropped.json`.

        The manifest is kept before anything is deleted, and stops counting before the files go: a killed process leaves
        the whole artifact, or none and some files of it, which dropping it again removes.

        Raises:
            ArtifactMissingError: If it is not there, and was not dropped either.
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
        """What is in an artifact's folder now; nothing is read."""
        names = self._location.names(f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}")
        if self._location.local is None:
            self._seen[kind, key] = tuple(name for name in names if name in (MANIFEST_NAME, DROPPED_NAME))
        return names

    def _parsed(self, kind: str, key: str, name: str, text: bytes) -> Manifest:
        try:
            return parse_manifest(kind, key, name, text)
        except ManifestFault as fault:
            raise self.damaged(kind, key, str(fault)) from fault

    @contextmanager
    def stage(self) -> Iterator[Path]:
        """An empty folder on this machine to write an artifact's files into; removed at the end, if not committed."""
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
        """Is it about where artifacts are written? Whoever makes one may meet others: files of its own, a network."""
        if isinstance(error.filename, str | bytes | os.PathLike):
            place = Path(os.fsdecode(error.filename)).absolute()
            return place.is_relative_to(self._location.local or folder.parent)
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)

    def sealed(self, manifest: Manifest, entries: Iterable[FileEntry]) -> Manifest:
        """A manifest with its files, at the places where `commit` puts them, and with its own digest.

        Args:
            manifest: All of it but `files`.
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
            The manifest that is in the store now: ours, or that of a writer who was earlier.
        """
        stored = self._commit(folder, manifest)
        if self._location.local is not None:
            if stored is manifest:
                final = self._location.local / manifest.kind / manifest.key
                _VERIFIED.add((manifest.manifest_digest, states_of(final, manifest.files)))
            return stored
        if digests_of(stored.files) == digests_of(manifest.files):  # else it has another content
            self._keep(folder, stored)
        return stored

    def _keep(self, folder: Path, manifest: Manifest) -> Path:
        """Make a staged folder this machine's copy of a remote artifact; returns where it is now."""
        copy = local_cache.adopt(folder, manifest.manifest_digest)
        _VERIFIED.add((manifest.manifest_digest, states_of(copy, manifest.files)))
        return copy

    def faults(self, manifest: Manifest) -> list[str]:
        """What differs from what was written, after reading all of it; see `looking.faults`."""
        return faults(self._location, manifest)

    def contradictions(self, manifest: Manifest) -> list[str]:
        """What contradicts the manifest without reading a file; see `looking.contradictions`."""
        return contradictions(self._location, manifest)

    def copy_from(self, source: "Artifacts", manifest: Manifest) -> Manifest:
        """Make an artifact of another store one of this store too; what is there already stays.

        The bytes are verified as they are read, and again, where they came to lie, before the manifest makes them an
        artifact. The copy's manifest differs in the files' paths alone.

        Returns:
            The manifest in this store: of the copy, or of an artifact that was there first.

        Raises:
            ArtifactDamagedError: If the source's files are not what was written.
            StoreError: If this store cannot be written, or does not keep what it is given.
        """
        copied = self.sealed(manifest, [entry.model_copy(update={"path": entry.name}) for entry in manifest.files])
        if self._location.local is None and source._location.local is not None:
            folder = source._location.local / manifest.kind / manifest.key
            source._verify(folder, manifest)
            return self._commit(folder, copied, should_check=True)
        with self.stage() as folder:
            source._download(manifest, folder)
            return self._commit(folder, copied, should_check=True)

    def parts(self, manifest: Manifest) -> list[Path | RangeFile]:
        """The artifact's files where they lie, to be read in part; nothing is hashed.

        Raises:
            ArtifactDamagedError: If a local file is missing, or has another size than was written. (A remote file is
                not looked at before it is read.)
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
                what = f"{entry.name} has {size_bytes} bytes, {entry.size_bytes} were written"
                raise self.damaged(manifest.kind, manifest.key, what)
            files.append(file)
        return files

    def read_file(self, manifest: Manifest, name: str) -> bytes:
        """One file of an artifact, verified; the others are neither fetched nor hashed.

        Raises:
            ArtifactMissingError: If the artifact has no such file.
            ArtifactDamagedError: If the file is missing, or its bytes are not those that were written.
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

    def local_folder(self, manifest: Manifest) -> Path:
        """A folder on this machine with the artifact's files under their own names, verified.

        Remote artifacts are downloaded into a cache, `~/.cache/starpo`, which may be deleted at any time.

        Raises:
            ArtifactDamagedError: If a file is missing, or its bytes are not those that were written.
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
            except ArtifactDamagedError:  # the copy is, not the artifact
                local_cache.forget(manifest.manifest_digest)
        return self._fetch(manifest)

    def damaged(self, kind: str, key: str, what: str) -> ArtifactDamagedError:
        """The error to raise for an artifact that is not what was written."""
        error = ArtifactDamagedError(
            f"the artifact {kind}/{key} in {self._location.name} is damaged: {what}.\n"
            f"Restore it from a copy, or delete {self._location.name.rstrip('/')}/{kind}/{key} "
            "and run the flow again: it is made anew from its inputs."
        )
        error.what = what
        return error

    def _commit(self, folder: Path, manifest: Manifest, *, should_check: bool = False) -> Manifest:
        """The manifest that is in the store then; `should_check`: read back what was sent to a remote store first."""
        if self._location.local is not None:
            is_ours = commit_locally(self._location.local, folder, manifest)
        else:
            was_dropped = DROPPED_NAME in self._seen.pop((manifest.kind, manifest.key), (DROPPED_NAME,))
            look = self.faults if should_check else lambda _: []
            is_ours = commit_remotely(self._location, folder, manifest, look, was_dropped=was_dropped)
        return manifest if is_ours else self._take_winner(manifest)

    def _take_winner(self, ours: Manifest) -> Manifest:
        self._location.forget(_manifest_path(ours.kind, ours.key))
        winner = self.manifest(ours.kind, ours.key)
        if winner.content_digest != ours.content_digest and winner.is_deterministic and ours.is_deterministic:
            _log.warning(
                "the same work gave two results: %s/%s is in the store with another content; the stored one is used",
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
        """The artifact's files under their own names in a local folder, verified there."""

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
        """The error to raise where a file is not there: another process may have deleted or dropped the artifact since
        its manifest was read, or made it anew; only one whose manifest is still there is damaged."""
        self._location.forget(_manifest_path(manifest.kind, manifest.key))
        try:
            current = self.manifest(manifest.kind, manifest.key)
        except ArtifactMissingError as error:
            return error
        if current.manifest_digest == manifest.manifest_digest:
            return self.damaged(manifest.kind, manifest.key, f"the file {name} is missing")
        return StoreError(
            f"the artifact {manifest.kind}/{manifest.key} in {self._location.name} was made anew by another "
            "process while this one used it; run the same command again"
        )


def _manifest_path(kind: str, key: str) -> str:
    return _path(kind, key, MANIFEST_NAME)


def _path(kind: str, key: str, name: str) -> str:
    return f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}/{name}"
