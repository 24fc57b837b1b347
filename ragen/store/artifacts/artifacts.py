"""Immutable folders `<kind>/<key>/` with a manifest: staged, committed atomically, verified on reading.

A local artifact is written to `tmp/<unique>/` and becomes visible by one rename of that folder. Its files are synced to
disk before that: a power failure leaves an artifact intact or removes it completely, and its work is done again. Object
storage has no such rename: there every attempt writes its files under unique names, and the manifest, put last and only
if there is none, makes them the artifact. Either way: without a manifest there is no artifact; of several writers one
wins and the others use its result; a killed writer leaves nothing visible.

An artifact that can be derived again may be dropped: its files are deleted, and its manifest stays as `dropped.json`.
It describes the artifact, and its digest proves that a derived replacement is the original. An artifact may also be
recorded, never written: its files were hashed, and not stored.

    Artifacts.stage -> files -> Artifacts.commit -> manifest.json       Artifacts.folder_of -> verified files
                      hashes -> Artifacts.create_dropped -> dropped.json
"""

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from starpo.ragen.core.errors import ArtifactMissingError, DerivationError
from starpo.ragen.store.artifacts.files import digests_of
from starpo.ragen.store.artifacts.reading import StoredArtifacts, path_of
from starpo.ragen.store.remote.committing import DROPPED_NAME, text_of
from starpo.ragen.store.remote.staging import staged
from starpo.schemas.manifest import MANIFEST_NAME, FileEntry, Manifest

_log = logging.getLogger(__name__)


class Artifacts(StoredArtifacts):
    """The artifacts of one store, to be read and written."""

    def stage(self) -> AbstractContextManager[Path]:
        """Context manager: an empty folder on this machine for an artifact's files; removed at the end if not
        committed."""
        return staged(self._location)

    def sealed(self, manifest: Manifest, entries: Iterable[FileEntry]) -> Manifest:
        """Return a manifest with its files, at the paths where `commit` puts them, and with its own digest.

        Args:
            manifest: The manifest without `files`.
            entries: Its files, from `ragen.store.artifacts.files.entries_of`.
        """
        entries = list(entries)
        paths = self._location.paths_of([entry.name for entry in entries])
        entries = [entry.model_copy(update={"path": path}) for entry, path in zip(entries, paths, strict=True)]
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
        if digests_of(stored.files) == digests_of(manifest.files):  # else its content differs
            place = self._location.adopt(folder, stored, is_ours=stored is manifest)
            if place is not None:
                self._remember(place, stored)
        return stored

    def create_dropped(self, manifest: Manifest) -> bool:
        """Make a sealed manifest an artifact that is recorded, never written; False if there is one, dropped or (in a
        local store) not."""
        return self._location.commit_dropped(manifest)

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
            self._location.replace_durably(path_of(kind, key, DROPPED_NAME), text_of(manifest).encode())
            self._location.delete([path_of(kind, key, MANIFEST_NAME)])
        if set(self._location.names(f"{kind}/{key}")) - {DROPPED_NAME}:
            self._location.delete(path_of(kind, key, entry.path) for entry in manifest.files)
            self._location.remove_empty(f"{kind}/{key}")
        self._location.forget_copy(manifest.manifest_digest)
        return manifest

    def discard(self, kind: str, key: str) -> None:
        """Delete an artifact that nothing names; if there is none, do nothing. A process that is reading it may fail.

        Raises:
            ArtifactDamagedError: If its manifest is not what was written.
        """
        try:
            manifest = self.manifest(kind, key)
        except ArtifactMissingError:
            return
        place = self._location.hide(f"{kind}/{key}", MANIFEST_NAME)
        if place is not None:
            self._location.delete(
                f"{place}/{name}" for name in (MANIFEST_NAME, *(file.path for file in manifest.files))
            )
            self._location.remove_empty(place)
        self._location.forget(path_of(kind, key, MANIFEST_NAME))
        self._location.forget_copy(manifest.manifest_digest)

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
        copied = self.sealed(manifest, manifest.files)
        if not self._location.moves_what_it_commits:
            folder = source._location.folder_in_place(f"{manifest.kind}/{manifest.key}")
            if folder is not None:
                source._verify(folder, manifest)
                return self._commit(folder, copied, should_check=True)
        with self.stage() as folder:
            source._download(manifest, folder)
            return self._commit(folder, copied, should_check=True)

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

    def _commit(self, folder: Path, manifest: Manifest, *, should_check: bool = False) -> Manifest:
        """Commit and return the manifest then in the store; `should_check`: first read back what was sent."""
        is_ours = self._location.commit(folder, manifest, self.faults if should_check else lambda _: [])
        return manifest if is_ours else self._take_winner(manifest)

    def _take_winner(self, ours: Manifest) -> Manifest:
        self._location.forget(path_of(ours.kind, ours.key, MANIFEST_NAME))
        winner = self.manifest(ours.kind, ours.key)
        if winner.content_digest != ours.content_digest and winner.is_deterministic and ours.is_deterministic:
            _log.warning(
                "the same work gave two results: %s/%s is stored with different content; using the stored one",
                ours.kind,
                ours.key,
            )
        return winner
