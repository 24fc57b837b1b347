"""Immutable folders `<kind>/<key>/` with a manifest: written aside, committed in one step, verified when read.

A local artifact is written to `tmp/<unique>/` and becomes visible by one rename of that folder. Object storage has no
such rename: there every attempt writes its files under a name of its own, and the manifest, put last and only if
there is none, makes them the artifact. Either way: no manifest, no artifact; of several writers one wins and the
others take its result; a killed writer leaves nothing visible.

    Artifacts.stage -> files -> Artifacts.commit -> manifest.json       Artifacts.local_folder -> verified files
"""

import errno
import hashlib
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from ragen.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from ragen.store.location import Location, sync
from schemas.manifest import FORMAT_VERSION, MANIFEST_NAME, FileEntry, Manifest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RESERVED = ("tmp", "runs", "quarantine")
_VERIFIED: set[tuple[str, str]] = set()
"""(folder, manifest digest) of what this process has verified; files are hashed once a process and artifact."""

_log = logging.getLogger(__name__)


class Artifacts:
    """The artifacts of one store."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def has(self, kind: str, key: str) -> bool:
        """Is there an artifact? Damage is not looked for."""
        try:
            self._location.read(_manifest_path(kind, key))
        except FileNotFoundError:
            return False
        return True

    def manifest(self, kind: str, key: str) -> Manifest:
        """An artifact's manifest.

        Raises:
            ArtifactMissingError: If there is no such artifact.
            ArtifactDamagedError: If the manifest is not what was written.
        """
        path = _manifest_path(kind, key)
        try:
            text = self._location.read(path)
        except FileNotFoundError as error:
            raise ArtifactMissingError(
                f"no artifact {kind}/{key} in the store {self._location.name}: there is no {MANIFEST_NAME}.\n"
                "Run the flow that makes it again, or check the store's address and the key."
            ) from error
        try:
            manifest = Manifest.model_validate_json(text)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"]))
            raise self.damaged(
                kind, key, f"{MANIFEST_NAME} cannot be read ({place or 'JSON'}: {fault['msg']})"
            ) from error
        if manifest.format_version > FORMAT_VERSION:
            raise StoreError(
                f"the manifest of {kind}/{key} has format {manifest.format_version}, this release reads up to "
                f"{FORMAT_VERSION}: it was written by a newer release; use that one"
            )
        if not manifest.is_intact:
            raise self.damaged(kind, key, f"{MANIFEST_NAME} was changed after it was written (its own digest differs)")
        if (manifest.kind, manifest.key) != (kind, key):
            raise self.damaged(kind, key, f"its manifest is that of {manifest.kind}/{manifest.key}")
        return manifest

    @contextmanager
    def stage(self) -> Iterator[Path]:
        """An empty folder on this machine to write an artifact's files into; removed at the end, if not committed."""
        try:
            if self._location.local is None:
                folder = Path(tempfile.mkdtemp(prefix="starpo-"))
            else:
                folder = self._location.local / "tmp" / uuid.uuid4().hex
                folder.mkdir(parents=True)
        except OSError as error:
            raise self._location.failure("write", "tmp", error) from error
        try:
            yield folder
        except OSError as error:
            raise self._location.failure("write", f"tmp/{folder.name}", error) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def commit(self, folder: Path, manifest: Manifest) -> Manifest:
        """Make a staged folder an artifact.

        Args:
            folder: From `stage`; every file in it belongs to the artifact.
            manifest: All of it but `files`.

        Returns:
            The sealed manifest that is in the store now: ours, or that of a writer who was earlier.
        """
        entries = [_entry(file, folder) for file in sorted(folder.rglob("*")) if file.is_file()]
        if self._location.local is None:
            return self._commit_remote(folder, manifest, entries)
        return self._commit_local(folder, self._location.local, manifest, entries)

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
        folder = _cache_folder() / manifest.manifest_digest
        if folder.is_dir():
            try:
                self._verify(folder, manifest)
                return folder
            except ArtifactDamagedError:  # the copy is, not the artifact
                shutil.rmtree(folder)
        self._fetch(manifest, folder)
        return folder

    def damaged(self, kind: str, key: str, what: str) -> ArtifactDamagedError:
        """The error to raise for an artifact that is not what was written."""
        return ArtifactDamagedError(
            f"the artifact {kind}/{key} in {self._location.name} is damaged: {what}.\n"
            f"Restore it from a copy, or delete {self._location.name.rstrip('/')}/{kind}/{key} "
            "and run the flow again: it is made anew from its inputs."
        )

    def _commit_local(self, folder: Path, root: Path, manifest: Manifest, entries: list[FileEntry]) -> Manifest:
        manifest = manifest.model_copy(update={"files": tuple(entries)}).sealed()
        for entry in entries:
            sync(folder / entry.path)
        (folder / MANIFEST_NAME).write_text(_text(manifest), encoding="utf-8")
        sync(folder / MANIFEST_NAME)
        sync(folder)
        final = root / manifest.kind / manifest.key
        final.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            try:
                os.rename(folder, final)  # noqa: PTH104 (refuses a folder that is not empty, which is the point)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if (final / MANIFEST_NAME).exists():
                    return self._take_winner(manifest)
                self._set_aside(final, root)
            else:
                sync(final.parent)
                return manifest
        raise StoreError(f"{final} cannot be written: something else keeps making it; see what else uses this store")

    def _set_aside(self, final: Path, root: Path) -> None:
        """A folder without a manifest is no artifact: put it out of the way, without losing it."""
        aside = root / "tmp" / f"incomplete-{final.parent.name}-{final.name}-{uuid.uuid4().hex}"
        _log.warning("%s has no %s and so is no artifact; moved to %s", final, MANIFEST_NAME, aside)
        os.rename(final, aside)  # noqa: PTH104

    def _commit_remote(self, folder: Path, manifest: Manifest, entries: list[FileEntry]) -> Manifest:
        attempt = uuid.uuid4().hex[:12]
        entries = [entry.model_copy(update={"path": f"{attempt}/{entry.name}"}) for entry in entries]
        manifest = manifest.model_copy(update={"files": tuple(entries)}).sealed()
        prefix = f"{manifest.kind}/{manifest.key}"
        for entry in entries:
            self._location.upload(folder / entry.name, f"{prefix}/{entry.path}")
        if self._location.create(f"{prefix}/{MANIFEST_NAME}", _text(manifest).encode()):
            return manifest
        winner = self._take_winner(manifest)
        if winner.files != manifest.files:  # equal after a put whose answer was lost: then the winner is this attempt
            self._location.delete(f"{prefix}/{entry.path}" for entry in entries)
        return winner

    def _take_winner(self, ours: Manifest) -> Manifest:
        winner = self.manifest(ours.kind, ours.key)
        if winner.content_digest != ours.content_digest and winner.is_deterministic and ours.is_deterministic:
            _log.warning(
                "the same work gave two results: %s/%s is in the store with another content; the stored one is used",
                ours.kind,
                ours.key,
            )
        return winner

    def _verify(self, folder: Path, manifest: Manifest) -> None:
        if (str(folder), manifest.manifest_digest) in _VERIFIED:
            return
        for entry in manifest.files:
            try:
                found = _entry(folder / entry.name, folder)
            except FileNotFoundError as error:
                raise self.damaged(manifest.kind, manifest.key, f"the file {entry.name} is missing") from error
            except OSError as error:
                raise self._location.failure("read", f"{manifest.kind}/{manifest.key}/{entry.name}", error) from error
            if found.size_bytes != entry.size_bytes:
                what = f"{entry.name} has {found.size_bytes} bytes, {entry.size_bytes} were written"
                raise self.damaged(manifest.kind, manifest.key, what)
            if found.sha256 != entry.sha256:
                what = f"the bytes of {entry.name} are not those that were written (sha256 differs)"
                raise self.damaged(manifest.kind, manifest.key, what)
        _VERIFIED.add((str(folder), manifest.manifest_digest))

    def _fetch(self, manifest: Manifest, folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix="part-", dir=folder.parent))
        try:
            for entry in manifest.files:
                target = part / entry.name
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self._location.download(f"{manifest.kind}/{manifest.key}/{entry.path}", target)
                except FileNotFoundError as error:
                    raise self.damaged(manifest.kind, manifest.key, f"the file {entry.name} is missing") from error
            self._verify(part, manifest)
            try:
                part.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process has fetched the same bytes meanwhile
                    raise
            self._verify(folder, manifest)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def checked_name(name: str, what: str) -> str:
    """Return a name that can be a folder's.

    Raises:
        StoreError: If it cannot.
    """
    if not _NAME.fullmatch(name) or (what == "kind" and name in _RESERVED):
        raise StoreError(
            f"'{name}' cannot be a {what}: expected 1-128 letters, digits, '.', '_' or '-', beginning with a letter or "
            f"digit{', and none of ' + ', '.join(_RESERVED) if what == 'kind' else ''}"
        )
    return name


def _manifest_path(kind: str, key: str) -> str:
    return f"{checked_name(kind, 'kind')}/{checked_name(key, 'key')}/{MANIFEST_NAME}"


def _entry(file: Path, folder: Path) -> FileEntry:
    name = file.relative_to(folder).as_posix()
    with file.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(name=name, path=name, sha256=sha256, size_bytes=os.fstat(stream.fileno()).st_size)


def _text(manifest: Manifest) -> str:
    return manifest.model_dump_json(indent=2) + "\n"


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "starpo"
