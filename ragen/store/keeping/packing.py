"""Packing a run as a single file, with everything needed to verify it elsewhere, except the answers of a judge; and
unpacking it into a store.

    store --copy_run--> a folder --tar--> FILE          FILE --checked, member by member--> a folder --copy_run--> store

The file is a plain tar of a store with this run alone: records with their seals, and every artifact it reaches, each
with its manifest. The same run gives the same bytes. Files from elsewhere are untrusted: member names are checked
before anything is written, and every artifact is verified by its digests when it is copied.
"""

import hashlib
import itertools
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import quoted
from starpo.ragen.store.artifacts.provenance import versions
from starpo.ragen.store.keeping.copying import Copy, copy_run
from starpo.ragen.store.records.runs import Runs
from starpo.ragen.store.remote.location import Location

HEAD_NAME = "ragen-pack.json"
FORMAT = 1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199}){1,12}")
_LEFT_OUT = re.compile(r"tmp/|quarantine/|runs/[^/]+/leases/")
"""Prefixes of files that belong to no run, or to the process that copied this one."""
_MAX_HEAD_BYTES = 10_000

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Pack:
    """Result of packing a run."""

    run: str
    """Name of the run."""
    num_artifacts: int
    """Number of artifacts in the file."""
    num_dropped: int
    """Artifacts of which only the manifest is in the file, as in the store; they can be derived again."""
    size_bytes: int
    """Size of the file."""
    sha256: str
    """SHA-256 of the file; 64 hexadecimal digits."""


def pack_run(source: Location, run: str, file: Path, on_progress: Progress = lambda done, total: None) -> Pack:
    """Pack a run into a new file.

    Args:
        source: The store that contains it; it is only read.
        run: Its name.
        file: Must not exist; its folder needs space for the run twice.
        on_progress: Called with the bytes copied and the total bytes to copy.

    Raises:
        ConfigError: If the file exists or cannot be written.
        StoreError: If there is no such run, it is running, or its records or manifests contain what looks like a
            secret.
        ArtifactMissingError: If an artifact that it needs is missing.
        ArtifactDamagedError: If an artifact or a record is not what was written.
    """
    if Runs(source).is_running(run):
        raise StoreError(f"run {run} is still running: pack it when it has ended")
    with _new_file(file), tempfile.TemporaryDirectory(prefix=".ragen-pack-", dir=file.parent) as folder:
        copied = copy_run(source, run, Location(folder), on_progress)
        members = list(_members(Path(folder)))
        _check_no_secret(Path(folder), members)
        head = {"format": FORMAT, "run": run, "starpo": versions().get("starpo", "unknown"), "files": len(members)}
        head_file = Path(folder, HEAD_NAME)
        head_file.write_text(json.dumps(head, sort_keys=True) + "\n", encoding="utf-8")
        with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
            for member in (head_file, *members):
                _add(tar, member, member.relative_to(folder).as_posix())
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Pack(run, copied.num_copied, copied.num_dropped, file.stat().st_size, digest)


def unpack_run(file: Path, target: Location, on_progress: Progress = lambda done, total: None) -> Copy:
    """Copy the run of a packed file into a store; existing artifacts are kept.

    Raises:
        StoreError: If it is not a packed run, has an unknown format, or contains names that are invalid in a store; or
            as `copy_run`.
        ArtifactMissingError: If an artifact that the run needs is not in it.
        ArtifactDamagedError: If an artifact or a record is not what was written.
    """
    beside = target.local.parent if target.local is not None and target.local.parent.is_dir() else None
    with tempfile.TemporaryDirectory(prefix=".ragen-unpack-", dir=beside) as folder:
        run = _extracted(file, Path(folder))
        return copy_run(Location(folder), run, target, on_progress)


@contextmanager
def _new_file(file: Path) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(exist_ok=False)
    except FileExistsError as error:
        raise ConfigError(f"{file} already exists, and packing never overwrites a file: name a new one") from error
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        yield
    except BaseException as error:
        file.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(file, error) from error
        raise


def _unwritable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the file {file} cannot be written ({error.strerror or error}): name one in a folder that you may write, with "
        "space for the run twice"
    )


def _members(folder: Path) -> Iterator[Path]:
    for member in sorted(folder.rglob("*")):
        if member.is_file() and not _LEFT_OUT.match(member.relative_to(folder).as_posix()):
            yield member


def _check_no_secret(folder: Path, members: list[Path]) -> None:
    """Check that the JSON files contain no secrets; they are sealed, so secrets cannot be blanked out."""
    for member in (member for member in members if member.suffix == ".json"):
        text = member.read_text(encoding="utf-8", errors="replace")
        if without_secrets(text) != text:
            raise StoreError(
                f"{member.relative_to(folder).as_posix()} holds what looks like a secret (a password or a query in an "
                "address, or the value of a secret variable of this process), so it is not packed. Records are sealed "
                "and cannot be changed: start the run again with the secret in its environment variable"
            )


def _add(tar: tarfile.TarFile, file: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = file.stat().st_size, 0o644
    with file.open("rb") as stream:
        tar.addfile(info, stream)


def _extracted(file: Path, folder: Path) -> str:
    """Extract the members of a packed file into a folder; returns the run's name."""
    try:
        with tarfile.open(file, "r:") as tar:
            run, num_files = _head(tar, file)
            found = 0
            for member in itertools.islice(tar, 1, None):
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or not _NAME.fullmatch(member.name):
                    raise StoreError(
                        f"{file}: contains {quoted(member.name)}, which is not a store file; nothing was unpacked"
                    )
                place = folder / member.name
                place.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                with place.open("xb") as written:
                    shutil.copyfileobj(content, written)
                found += 1
    except FileExistsError as error:
        raise StoreError(f"{file}: contains the same file twice; nothing was unpacked") from error
    except (tarfile.TarError, EOFError, UnicodeError) as error:
        raise StoreError(f"{file}: is not a file written by `ragen pack`, or is truncated ({error})") from error
    except OSError as error:
        raise StoreError(f"{file}: cannot be unpacked ({error.strerror or error})") from error
    if found != num_files:
        raise StoreError(
            f"{file}: contains {found} of {quoted(num_files)} files, so it is truncated; nothing was unpacked"
        )
    return run


def _head(tar: tarfile.TarFile, file: Path) -> tuple[str, object]:
    """Return the run's name and the number of files that follow, from the first member."""
    first = tar.next()
    content = None
    if first is not None and first.name == HEAD_NAME and first.size <= _MAX_HEAD_BYTES:
        content = tar.extractfile(first)
    try:
        head = json.loads(content.read()) if content is not None else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or not isinstance(head.get("run"), str):
        raise StoreError(f"{file}: is not a file written by `ragen pack`: it does not begin with {HEAD_NAME}")
    if head.get("format") != FORMAT:
        raise StoreError(
            f"{file}: has format {quoted(head.get('format'))}, this release reads {FORMAT}; unpack it with the "
            f"release that packed it ({quoted(head.get('starpo'))})"
        )
    return str(head["run"]), head.get("files")
