"""The views over a store: the artifacts that runs reference, read in place, column by column.

    runs -> named artifacts -> Parquet files with (run, iteration) -> Arrow datasets -> Database
                                                 `-- many files, many queries: one temporary file --'

Checks and their cost. Always: the manifest of every artifact that a view reads (one small read each) and, locally, the
size of its files; a remote file of the wrong size has its footer elsewhere and cannot be read. Columns and iterations
that a query does not need are neither read nor checked. If reading fails, the artifacts of the views concerned are
hashed to identify the damaged one. With `should_verify`, all of them are hashed beforehand, which reads every byte (and
downloads remote files into the cache); only then is a changed byte certain to be detected.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, cached_property, reduce
from io import SEEK_END
from itertools import islice
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.named import NamedArtifact, measured_artifacts, named_artifacts
from starpo.ragen.evidence.audit.panels import panels
from starpo.ragen.evidence.audit.staleness import staleness
from starpo.ragen.evidence.audit.views import DATASET_VIEWS, RECORD_VIEWS
from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.keys import canonical_json
from starpo.ragen.store.attempts import attempt_of
from starpo.ragen.store.measurements import MEASURED
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.manifest import Manifest

NUM_READERS = 8
"""Number of manifests read concurrently: on object storage each costs a round trip."""
MAX_FILES = 100
"""Number of files of a view from which they are copied to one for many queries. A file of a few rows takes a
millisecond to open in every query, and its footer more memory than its rows."""
_ROWS_AT_ONCE = 8_192
_GROWTH = 4
"""Safe guess of how much larger the copy is, in which reused rows are there once for every iteration."""

Part = Path | RangeFile


def open_database(
    store: Store,
    runs: list[str],
    *,
    should_verify: bool = False,
    iteration: int | None = None,
    has_many_queries: bool = False,
    bounds: Runtime | None = None,
) -> Database:
    """Open the views over some runs.

    Args:
        store: Store that holds the runs.
        runs: Names of the runs.
        should_verify: Whether to hash every file of a view before it is read.
        iteration: The only iteration whose rows the views have. None for all.
        has_many_queries: Whether every view will be queried many times, as audits do. The first query of a view of many
            files then reads all of their columns, and copies them to one temporary file, unless that might exceed
            `STARPO_SQL_SPILL_GB`.
        bounds: Limits of time, memory and disk. None for those of the process environment.

    Raises:
        StoreError: If there is no such run. (Artifacts are opened when a query needs them; queries may therefore raise
            ArtifactMissingError and ArtifactDamagedError, which name the artifact and its place in the run.)
    """
    views = _StoredViews(store, runs, should_verify, iteration, has_many_queries)
    return Database(views.load, views.explain, views.decode, views.retokenise, bounds)


class _StoredViews:
    def __init__(
        self, store: Store, runs: list[str], should_verify: bool, iteration: int | None, has_many_queries: bool
    ) -> None:
        self._store = store
        self._runs = runs
        self._should_verify = should_verify
        self._has_many_queries = has_many_queries
        self._iteration = iteration
        named = [artifact for run in runs for artifact in named_artifacts(store, run)]
        self._named = [artifact for artifact in named if iteration in (None, artifact.iteration)]
        self._loaded: list[str] = []
        self._tokenizer = cache(self._find_tokenizer)

    def load(self, view: str, folder: Path) -> Any:
        """Return an Arrow dataset or table with the columns of a view; temporary files go to the folder."""
        if view in DATASET_VIEWS:
            self._loaded.append(view)
            parts = self._parts(view)
            uses = {run: staleness(self._store, run) for run in self._runs} if view == "turns" else {}
            files = [(file, _facts(view, artifact, uses)) for artifact, files in parts for file in files]
            limit = Runtime.current().sql_spill_gb * 1e9 / _GROWTH
            if (
                self._has_many_queries
                and len(files) > MAX_FILES
                and sum(_size_bytes(file) for file, _ in files) < limit
            ):
                try:
                    return _copied(view, files, folder)
                except (pa.ArrowException, OSError) as error:
                    raise self.explain(str(error)) from error
            return _dataset(view, files)
        if view == "panels":
            self._loaded.append("episodes")
            return panels(self._store, self._named)
        return self._runs_table if view == "runs" else self._artifacts_table

    def decode(self, run: str, tokens: Sequence[int]) -> str | None:
        """Decode tokens, special tokens included; None if no checkpoint has the run's tokenizer."""
        tokenizer = self._tokenizer(run)
        if tokenizer is None:
            return None
        return str(tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def retokenise(self, run: str, texts: Sequence[Sequence[int]]) -> list[list[int]] | None:
        """Decode and re-encode token lists, special tokens included; None if no checkpoint has the run's tokenizer."""
        tokenizer = self._tokenizer(run)
        if tokenizer is None:
            return None
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        decoded = backend.decode_batch([list(ids) for ids in texts], skip_special_tokens=False)
        return [encoding.ids for encoding in backend.encode_batch_fast(decoded, add_special_tokens=False)]

    def explain(self, message: str) -> Exception:
        """Return the error for files that could not be read; it names the damaged artifact, if there is one."""
        try:
            for kind in self._loaded:
                self._parts(kind, should_verify=True)
        except (ArtifactDamagedError, ArtifactMissingError) as error:
            return error
        return StoreError(
            f"a dataset of {self._store.url} cannot be read, although its bytes are as written: {message}"
        )

    def _find_tokenizer(self, run: str) -> Any:
        if run not in self._runs:
            return None
        return find_tokenizer(self._store, checkpoints_of(self._store, self._store.runs.iterations(run)))

    def _parts(self, kind: str, *, should_verify: bool = False) -> list[tuple[NamedArtifact, list[Part]]]:
        named = [artifact for artifact in self._named if artifact.kind == kind]
        if kind in MEASURED:
            named = [artifact for run in self._runs for artifact in measured_artifacts(self._store, run)]
            named = [one for one in named if one.kind == kind and self._iteration in (None, one.iteration)]
        is_hashed = should_verify or self._should_verify
        keys = list(dict.fromkeys(artifact.key for artifact in named))
        places = {artifact.key: artifact for artifact in reversed(named)}

        def parts(key: str) -> list[Part]:
            with _said_where(places[key]):
                return self._store.parts(kind, key, should_verify=is_hashed)

        with ThreadPoolExecutor(NUM_READERS) as readers:
            by_key = dict(zip(keys, readers.map(parts, keys), strict=True))
        return [(artifact, by_key[artifact.key]) for artifact in named]

    @cached_property
    def _runs_table(self) -> pa.Table:
        rows = []
        for run in map(self._store.runs.get, self._runs):
            state = self._store.runs.state(run.name)
            rows.append(
                {
                    "run": run.name,
                    "flow": run.flow,
                    "preset": run.preset,
                    "status": state.status if state else None,
                    "created": run.created,
                    "config": canonical_json(run.stated),
                }
            )
        return pa.Table.from_pylist(rows, schema=RECORD_VIEWS["runs"])

    @cached_property
    def _artifacts_table(self) -> pa.Table:
        def row(artifact: NamedArtifact) -> dict[str, Any]:
            with _said_where(artifact):
                manifest, is_dropped = self._manifest(artifact.kind, artifact.key)
            return {
                "run": artifact.run,
                "iteration": artifact.iteration,
                "stage": artifact.stage,
                "kind": artifact.kind,
                "artifact": artifact.key,
                "is_reused": artifact.is_reused,
                "is_dropped": is_dropped,
                "num_rows": manifest.num_rows,
                "size_bytes": sum(entry.size_bytes for entry in manifest.files),
                "seconds": manifest.provenance.get("seconds"),
            }

        with ThreadPoolExecutor(NUM_READERS) as readers:
            return pa.Table.from_pylist(list(readers.map(row, self._named)), schema=RECORD_VIEWS["artifacts"])

    def _manifest(self, kind: str, key: str) -> tuple[Manifest, bool]:
        """Return the manifest, and whether the artifact was dropped and only the manifest is left."""
        try:
            return self._store.manifest(kind, key), False
        except ArtifactMissingError:
            dropped = self._store.dropped(kind, key)
            if dropped is None:
                raise
            return dropped, True


def _facts(view: str, artifact: NamedArtifact, uses: Mapping[str, Mapping[int, int]]) -> dict[str, pa.Scalar]:
    """Return the columns of a view that no file has, and that are constant over the rows of an artifact."""
    values = {
        "run": artifact.run,
        "iteration": artifact.iteration,
        "artifact": artifact.key,
        "is_reused": artifact.is_reused,
        "staleness": uses.get(artifact.run, {}).get(artifact.iteration),
        "attempt": attempt_of(artifact.stage),
    }
    schema = DATASET_VIEWS[view]
    return {name: pa.scalar(value, schema.field(name).type) for name, value in values.items() if name in schema.names}


def _dataset(view: str, files: Iterable[tuple[Part, Mapping[str, pa.Scalar]]]) -> ds.Dataset | pa.Table:
    """Build a dataset of one fragment per file; columns not in the file are constant over its rows."""
    schema = DATASET_VIEWS[view]
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True))
    here = pyarrow.fs.LocalFileSystem()
    fragments = []
    for file, facts in files:
        known = reduce(and_, (ds.field(name) == value for name, value in facts.items() if value.is_valid))
        if isinstance(file, Path):
            fragments.append(parquet.make_fragment(str(file), here, known))
        else:
            fragments.append(parquet.make_fragment(pa.PythonFile(file, mode="r"), None, known))
    return ds.FileSystemDataset(fragments, schema, parquet) if fragments else schema.empty_table()


def _copied(view: str, files: Iterable[tuple[Part, Mapping[str, pa.Scalar]]], folder: Path) -> ds.Dataset:
    """Copy the rows of all files, with the columns of the view, to one file in the folder, a few files at a time."""
    schema, target = DATASET_VIEWS[view], folder / f"{view}.parquet"

    def rows(part: tuple[Part, Mapping[str, pa.Scalar]]) -> pa.Table:
        file, facts = part
        with pq.ParquetFile(file if isinstance(file, Path) else pa.PythonFile(file, mode="r")) as parquet:
            table = parquet.read(use_threads=False)
        columns = {name: pa.repeat(value, table.num_rows) for name, value in facts.items()}
        return pa.Table.from_arrays(
            [columns[name] if name in columns else table[name] for name in schema.names], schema=schema
        )

    waiting, unwritten = iter(files), list[pa.Table]()
    with (
        ThreadPoolExecutor(NUM_READERS) as readers,
        pq.ParquetWriter(target, schema, compression="lz4") as writer,
    ):
        while some := list(islice(waiting, NUM_READERS)):
            unwritten += readers.map(rows, some)
            if sum(map(len, unwritten)) >= _ROWS_AT_ONCE:
                writer.write_table(pa.concat_tables(unwritten))
                unwritten.clear()
        writer.write_table(pa.concat_tables([schema.empty_table(), *unwritten]))
    return ds.dataset(target, schema, format="parquet")


def _size_bytes(file: Part) -> int:
    return file.stat().st_size if isinstance(file, Path) else file.seek(0, SEEK_END)


@contextmanager
def _said_where(artifact: NamedArtifact) -> Iterator[None]:
    """Prefix errors about an artifact with its place in the run."""
    try:
        yield
    except StoreError as error:
        raise type(error)(f"{artifact.place}: {error}") from error
