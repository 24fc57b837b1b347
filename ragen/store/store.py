"""`Store`: the artifacts of one address, its datasets among them, and its runs.

<store>/<kind>/<key>/        an immutable artifact: part-*.parquet or a folder's files, and manifest.json
<store>/shards/<key>/        a finished part of an evaluation that is in progress, or was stopped; an artifact, too
<store>/runs/<run>/          records of a named run
<store>/answers/             questions to external judges and their answers
<store>/ablations/<name>/    results of ablations, computed from runs
<store>/quarantine/          datasets that break their contract
<store>/tmp/                 unfinished artifacts (a local store); may be emptied when nothing is running
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store.artifacts import datasets
from starpo.ragen.store.artifacts.artifacts import Artifacts
from starpo.ragen.store.artifacts.facts import Facts
from starpo.ragen.store.artifacts.files import entries_of
from starpo.ragen.store.artifacts.folders import digest_of, hashed_files
from starpo.ragen.store.artifacts.quarantine import quarantine
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import Runs
from starpo.ragen.store.remote.opening import open_location
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import FileEntry, Manifest
from starpo.schemas.violation import ContractViolation

if TYPE_CHECKING:
    from starpo.ragen.store.records.answers import Answers


class Store(Artifacts):
    """A store at an fsspec address: a folder, or a URL such as `s3://bucket/prefix`.

    Cheap to create; nothing is accessed before the first call. Safe for concurrent use by threads and processes.

    Attributes:
        url: Its address, without secrets.
        address: Its address independent of the working folder; also valid on other machines that mount it.
        runs: Its runs by name.

    Raises:
        StoreError: If the address is empty or of an unknown kind, or contains credentials.
    """

    def __init__(self, url: str) -> None:
        super().__init__(open_location(url))
        self.url = self._location.name
        self.address = self._location.address
        self.runs = Runs(self._location)

    @cached_property
    def answers(self) -> "Answers":
        """Stored questions to external judges and their answers."""
        from starpo.ragen.store.records.answers import Answers

        return Answers(self._location)

    def expect(self) -> None:
        """Check that there is a store at this address; an empty folder counts as a store without runs.

        Raises:
            StoreError: If there is none.
        """
        missing = self._location.absence()
        if missing:
            raise StoreError(f"no store was found at {self.url}: {missing}; check the store's address")

    def keys(self, kind: str) -> list[str]:
        """Return the keys of all artifacts of a kind, sorted; unfinished ones may be among them."""
        return sorted(self._location.names(kind))

    def put_table(self, kind: str, data: pa.Table | Iterable[pa.RecordBatch], facts: Facts) -> Manifest:
        """Validate and store a dataset. An existing artifact is not overwritten.

        Args:
            kind: Dataset kind.
            data: A table, or batches of one schema; batches are streamed in bounded memory.
            facts: The work that it stands for.

        Returns:
            The manifest in the store: of this data, or of an artifact that was stored first.

        Raises:
            DataError: If the data break their contract; they are then kept in quarantine, if it can be written.
            StoreError: If the store cannot be written.
        """
        _known_dataset(kind)
        if self._has_now(kind, facts.key):
            return self.manifest(kind, facts.key)
        with self.stage() as folder:
            file = folder / datasets.PART_NAME
            written = datasets.write_dataset(data, kind, file)
            if written.violation is not None:
                raise quarantine(self._location, [file], facts.key, written.violation) from written.violation
            manifest = facts.manifest(
                kind, written.content_digest, dataset_version=DATASETS[kind].version, num_rows=written.num_rows
            )
            return self.commit(folder, self.sealed(manifest, entries_of(folder)))

    def new_folder(self) -> AbstractContextManager[Path]:
        """Context manager: an empty folder on this machine for the files of a new artifact; removed at the end.

        Raises:
            StoreError: If it, or what the block writes, cannot be written.
        """
        return self.stage()

    def take_folder(self, kind: str, folder: Path, facts: Facts) -> Manifest:
        """Store a folder of `new_folder`, such as a checkpoint, unless the key exists; its files are moved.

        The content digest is over the files' names and contents.

        Raises:
            DerivationError: If it was dropped, and had other content, although both are repeatable.
            StoreError: If the folder is empty or contains a link, or the store cannot be written.
        """
        _check_no_dataset(kind)
        if self._has_now(kind, facts.key):
            return self.manifest(kind, facts.key)
        files = hashed_files(folder)
        manifest = self.sealed(facts.manifest(kind, digest_of(files)), files)
        dropped = self.dropped(kind, facts.key)
        if dropped is not None and dropped.is_deterministic and manifest.is_deterministic:
            self.expect_same(dropped, manifest)
        return self.commit(folder, manifest)

    def put_dropped(self, kind: str, files: Sequence[FileEntry], facts: Facts) -> Manifest:
        """Record a folder that is recorded, never written: its manifest is stored, its files are not.

        Args:
            kind: Kind of the artifact.
            files: The entries of its files, sorted by name.
            facts: The work that it stands for.

        Returns:
            The manifest in the store: this one, or that of an artifact, perhaps dropped, that was stored first.

        Raises:
            DerivationError: If that one has other content.
            StoreError: If the store cannot be written.
        """
        _check_no_dataset(kind)
        manifest = facts.manifest(kind, digest_of(files)).model_copy(update={"files": tuple(files)}).sealed()
        if not self._has_now(kind, facts.key) and self.create_dropped(manifest):
            return manifest
        stored = self.lasting_manifest(kind, facts.key)
        self.expect_same(stored, manifest)
        return stored

    def read_table(self, kind: str, key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a dataset, verified and validated.

        Args:
            kind: Dataset kind.
            key: Its key.
            columns: Columns to read, in this order; None: all.

        Raises:
            ArtifactMissingError: If there is no such artifact.
            ArtifactDamagedError: If its files or its manifest are not what was written.
            StoreError: If it was written with another version of the schema, or the store cannot be read.
            DataError: If the data break their contract.
        """
        schema = datasets.columns_schema(_known_dataset(kind), columns)
        manifest = self.manifest(kind, key)
        batches = list(self._validated(self._verified_files(manifest), manifest, schema.names))
        return pa.Table.from_batches([datasets.as_declared(batch, schema) for batch in batches], schema=schema)

    def parts(self, kind: str, key: str, *, should_verify: bool = False) -> list[Path | RangeFile]:
        """Return a dataset's Parquet files in place, for readers that need some of their columns.

        The manifest, the schema version and the sizes of local files are checked; the content is neither hashed nor
        validated.

        Args:
            kind: Dataset kind.
            key: Its key.
            should_verify: Hash all files first; remote files are downloaded into the local cache and read from there.

        Raises:
            ArtifactMissingError: If there is no such artifact.
            ArtifactDamagedError: If its manifest or its files are not what was written, as far as checked.
            StoreError: If it was written with another version of the schema, or the store cannot be read.
        """
        _known_dataset(kind)
        return self.parts_of(self.manifest(kind, key), should_verify=should_verify)

    def parts_of(self, manifest: Manifest, *, should_verify: bool = False) -> list[Path | RangeFile]:
        """Return the same for a dataset whose manifest has been read."""
        _check_version(manifest)
        if not should_verify:
            return self.files_of(manifest)
        folder = self.folder_of(manifest)
        return [folder / entry.name for entry in manifest.files]

    def read_file(self, kind: str, key: str, name: str) -> bytes:
        """Read one file of an artifact, such as a checkpoint's tokenizer, verified; other files are not fetched.

        Raises:
            ArtifactMissingError: If there is no such artifact, or no such file in it.
            ArtifactDamagedError: If its manifest or the file's content is not what was written.
        """
        return self.file_of(self.manifest(kind, key), name)

    def local_folder(self, kind: str, key: str) -> str:
        """Return a folder on this machine with the artifact's files under their own names, verified. Treat it as
        read-only.

        A remote artifact is downloaded once into the local cache.

        Raises:
            ArtifactMissingError: If there is no such artifact.
            ArtifactDamagedError: If its files or its manifest are not what was written.
        """
        return str(self.folder_of(self.manifest(kind, key)))

    def _has_now(self, kind: str, key: str) -> bool:
        """Whether the artifact exists. One that this object has just found missing is not looked up again: `commit`
        resolves races between writers."""
        return not self.was_missed(kind, key) and self.has(kind, key)

    def _verified_files(self, manifest: Manifest) -> list[Path]:
        """Return the dataset's files on this machine, after checking content, schema version and number of rows."""
        kind, key = manifest.kind, manifest.key
        _check_version(manifest)
        folder = self.folder_of(manifest)
        files = [folder / entry.name for entry in manifest.files]
        try:
            num_rows = datasets.num_rows(files)
        except pa.ArrowInvalid as error:
            raise self.damaged(kind, key, f"its Parquet cannot be read ({error})") from error
        if num_rows != manifest.num_rows:
            raise self.damaged(kind, key, f"it has {num_rows} rows, its manifest says {manifest.num_rows}")
        return files

    def _validated(self, files: list[Path], manifest: Manifest, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all rows; raise at the end if the rows break their contract."""
        from starpo.schemas.validate import Validator  # pandera and polars, which listings of runs do not need

        validator = Validator(manifest.kind)
        for batch in datasets.stored_batches(files):
            validator.check(batch)
            yield batch.select([name for name in columns if name in batch.schema.names])
        try:
            validator.finish()
        except ContractViolation as violation:
            raise quarantine(self._location, files, manifest.key, violation) from violation


def _check_no_dataset(kind: str) -> None:
    checked_name(kind, "kind")
    if kind in DATASETS:
        raise StoreError(f"'{kind}' is a dataset: store it as a table, so that it is validated")


def _check_version(manifest: Manifest) -> None:
    version = DATASETS[manifest.kind].version
    if manifest.dataset_version != version:
        raise StoreError(
            f"{manifest.kind}/{manifest.key} was written with version {manifest.dataset_version} of the dataset "
            f"'{manifest.kind}', this release knows version {version}: read it with the release that wrote it "
            f"({manifest.provenance.get('versions', {}).get('starpo', 'unknown')}), or run its stage again"
        )


def _known_dataset(kind: str) -> str:
    if kind not in DATASETS:
        raise ConfigError(f"'{kind}' is not a dataset; known: {', '.join(DATASETS)}")
    return kind
