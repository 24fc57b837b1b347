"""`ObjectStorage`: the operations a store needs on S3 (or another remote fsspec file system), each bounded in time.

A call that fails with a transient error is retried with exponential backoff and jitter. The total time is bounded:
seconds for a server that has not answered yet, as its address is more likely wrong than its service down; a minute for
one that has, which outlasts a gateway's restart. Below that, botocore retries single requests, so that one failed part
of a large file does not fail the whole file.

There is one client per process and account: it keeps its connections, and caches the content of immutable files.
"""

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import tenacity
from botocore.parsers import ResponseParserError

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.store.remote.failures import Failure, describe, failure_of, is_answer
from starpo.ragen.store.remote.redaction import check_endpoint

CONNECT_TIMEOUT_S = 5
"""Timeout for connecting to a server, in seconds."""
READ_TIMEOUT_S = 20
"""Timeout for a silent server, in seconds."""
NUM_REQUEST_TRIES = 2
"""Attempts per request within a call."""
NUM_FIRST_TRIES = 3
"""Attempts of a call to a server that has not answered yet."""
FIRST_PATIENCE_S = 20.0
"""Time limit for all of these attempts, in seconds."""
PATIENCE_S = 60.0
"""Seconds for all attempts of a call to a server that has answered before, plus one second per `SLOWEST` bytes."""
SLOWEST = 2**20
"""Bytes per second; slower transfers are abandoned."""
PAUSE_S = 0.25
"""Maximum pause before the second attempt; doubled before each further one, up to `MAX_PAUSE_S`."""
MAX_PAUSE_S = 8.0
PART_BYTES = 16 * 2**20
"""Larger files are sent and fetched in parts of this size."""
NUM_PARTS = 4
"""Parts of one file transferred concurrently."""

_MAX_REMEMBERED = 4096
_OPTIONS: dict[str, Any] = {
    "config_kwargs": {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retries": {"mode": "standard", "total_max_attempts": NUM_REQUEST_TRIES},
        "max_pool_connections": 32,
    }
}

T = TypeVar("T")


@dataclass
class _Client:
    """A file system, and this process's state and cache for it."""

    fs: Any
    has_answered: bool = False
    probed: set[str] = field(default_factory=set)
    remembered: "OrderedDict[str, bytes]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ObjectStorage:
    """A bucket, or a prefix in one. Full paths consist of bucket, '/' and key.

    Every method raises `FileNotFoundError` if the file does not exist, and `StoreError` for all other failures.

    Attributes:
        root: The prefix, without a trailing slash.
    """

    def __init__(self, url: str, name: str) -> None:
        """`name` is the address as shown in messages."""
        self._name = name
        self._is_s3 = url.startswith(("s3://", "s3a://"))
        if self._is_s3:
            check_endpoint()
            self._client = _shared_client(_environment(), repr(_OPTIONS))
            self.root = self._client.fs._strip_protocol(url).rstrip("/")
        else:
            fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
            self._client, self.root = _Client(fs), root.rstrip("/")

    def read(self, path: str) -> bytes:
        """Read a file."""
        options = {"max_concurrency": 1} if self._is_s3 else {}  # otherwise s3fs requests the size first
        return self._call("read", path, lambda fs, limit: fs.cat_file(self._place(path), **options, **limit))

    def read_lasting(self, path: str) -> bytes:
        """Read an immutable file: fetched once per process, unless it is deleted or forgotten here."""
        place = self._place(path)
        with self._client.lock:
            known = self._client.remembered.get(place)
        return known if known is not None else self._remember(path, self.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes from `start` to before `end`, or fewer if the file ends earlier."""
        place = self._place(path)
        try:
            return self._call(
                "read", path, lambda fs, limit: fs.cat_file(place, start=start, end=end, **limit), end - start
            )
        except _BeyondEndError:
            return b""

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file."""
        self._call("write", path, lambda fs, limit: fs.pipe_file(self._place(path), data, **limit), len(data))

    def create(self, path: str, data: bytes) -> bool:
        """Write a small file unless it exists, in a single conditional put.

        A response may be lost and the put retried, by this library or below it; so an existing file with exactly these
        bytes counts as written by this call. The bytes must be unique to this writer.

        Returns:
            False if it exists with other bytes.
        """
        try:
            self._call(
                "write",
                path,
                lambda fs, limit: fs.pipe_file(self._place(path), data, mode="create", **limit),
                len(data),
            )
        except FileExistsError:
            try:
                return self.read(path) == data
            except FileNotFoundError:  # just deleted
                return False
        return True

    def remember(self, path: str, data: bytes) -> None:
        """Cache the content of an immutable file that was just written."""
        self._remember(path, data)

    def forget(self, path: str) -> None:
        """Remove a file from the cache."""
        with self._client.lock:
            self._client.remembered.pop(self._place(path), None)

    def names(self, folder: str) -> list[str]:
        """List the names directly in a folder, with one request; empty if there are none."""
        if not folder:
            entries = self._call("list", folder, lambda fs, limit: fs.ls(self.root, detail=False, **limit))
        elif self._is_s3:
            entries = self._call(
                "list",
                folder,
                lambda fs, limit: fs.find(self.root, maxdepth=1, withdirs=True, prefix=f"{folder}/", **limit),
            )
        else:
            entries = self._call("list", folder, lambda fs, limit: fs.ls(self._place(folder), detail=False))
        return [entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries]

    def files(self, folder: str) -> dict[str, dict[str, Any]]:
        """Return path relative to the root -> listing entry, of all files in a folder recursively."""
        if self._is_s3 and folder:
            listing = self._call(
                "list", folder, lambda fs, limit: fs.find(self.root, prefix=f"{folder}/", detail=True, **limit)
            )
        else:
            listing = self._call("list", folder, lambda fs, limit: fs.find(self._place(folder), detail=True, **limit))
        start = len(self.root.lstrip("/")) + 1
        return {name.lstrip("/")[start:]: info for name, info in listing.items()}

    def digest(self, path: str) -> tuple[str, int]:
        """Return SHA-256 (64 hex digits) and size in bytes of a file, read in parts."""
        sha256, size_bytes = hashlib.sha256(), 0
        while True:
            block = self.read_range(path, size_bytes, size_bytes + PART_BYTES)
            sha256.update(block)
            size_bytes += len(block)
            if len(block) < PART_BYTES:
                return sha256.hexdigest(), size_bytes

    def upload(self, file: Path, path: str) -> None:
        """Upload a local file, a large one in several concurrent parts."""
        size_bytes = file.stat().st_size
        options: dict[str, Any] = {}
        if self._is_s3:  # S3 accepts at most 10,000 parts
            options = {"chunksize": max(PART_BYTES, -(-size_bytes // 10_000)), "max_concurrency": NUM_PARTS}
        self._call(
            "write", path, lambda fs, limit: fs.put_file(str(file), self._place(path), **options, **limit), size_bytes
        )

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Download a file, a large one in several concurrent parts, each retried until it is complete.

        Args:
            path: The file.
            file: The local file to write.
            size_bytes: Its expected size. If it differs, the received bytes are written all the same.
        """
        if size_bytes <= PART_BYTES:
            data = self.read(path)
            self._locally(path, lambda: file.write_bytes(data))
            return
        starts = range(0, size_bytes, PART_BYTES)
        with file.open("wb") as stream, ThreadPoolExecutor(NUM_PARTS) as pool:

            def fetch(start: int) -> None:
                data = self.read_range(path, start, min(start + PART_BYTES, size_bytes))
                self._locally(path, lambda: os.pwrite(stream.fileno(), data, start))

            for done in [pool.submit(fetch, start) for start in starts]:
                done.result()

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.forget(path)
        self._call("delete", path, lambda fs, limit: fs.rm_file(self._place(path), **limit))

    def failure(self, verb: str, path: str, error: BaseException, tries: int = 1) -> StoreError:
        """Return the error for an operation that failed at `path`."""
        failure = failure_of(error) or Failure.LOCAL
        given_up = f"Given up after {tries} tries. " if failure.is_passing and tries > 1 else ""
        what = without_secrets(f"cannot {verb} {self._name.rstrip('/')}/{path}: {describe(error)}")
        return StoreError(f"{what}\n{given_up}{failure.value}")

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _remember(self, path: str, data: bytes) -> bytes:
        with self._client.lock:
            self._client.remembered[self._place(path)] = data
            if len(self._client.remembered) > _MAX_REMEMBERED:
                self._client.remembered.popitem(last=False)
        return data

    def _locally(self, path: str, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            raise self.failure("read", path, error) from error

    def _call(self, verb: str, path: str, call: Callable[[Any, dict[str, float]], T], size_bytes: int = 0) -> T:
        """Call with the file system and a time limit in seconds; retry transient errors; translate all others.

        Raises:
            FileNotFoundError: If the file does not exist.
            FileExistsError: If it already exists.
            StoreError: For everything else.
        """
        client, started = self._client, time.monotonic()

        def seconds() -> float:
            return (PATIENCE_S if client.has_answered else FIRST_PATIENCE_S) + size_bytes / SLOWEST

        def is_over(state: tenacity.RetryCallState) -> bool:
            is_stranger = not client.has_answered and state.attempt_number >= NUM_FIRST_TRIES
            return is_stranger or time.monotonic() - started + state.upcoming_sleep >= seconds()

        def may_pass(error: BaseException) -> bool:
            client.has_answered = client.has_answered or is_answer(error)
            failure = failure_of(error)
            return failure is not None and failure.is_passing

        tries = 0
        try:
            for attempt in tenacity.Retrying(
                stop=is_over,
                wait=tenacity.wait_random_exponential(PAUSE_S, max=MAX_PAUSE_S),
                retry=tenacity.retry_if_exception(may_pass),
                reraise=True,
            ):
                with attempt:
                    tries += 1
                    left = max(1.0, seconds() - (time.monotonic() - started))
                    limit = {"timeout": left} if self._is_s3 else {}
                    self._probe(limit)
                    answer = call(client.fs, limit)
        except Exception as error:  # the only common base of botocore's and aiohttp's errors
            failure = failure_of(error)
            if failure is None:
                raise
            if failure.is_passing:  # later calls fail sooner
                client.has_answered = False
            if failure is Failure.MISSING:
                raise FileNotFoundError(self._place(path)) from error
            if failure is Failure.EXISTS:
                raise FileExistsError(self._place(path)) from error
            if failure is Failure.BEYOND_END:
                raise _BeyondEndError from error
            raise self.failure(verb, path, error, tries) from error
        client.has_answered = True
        return answer

    def _probe(self, limit: dict[str, float]) -> None:
        """Check once per process and bucket that the server speaks S3 and has the bucket; an HTML page does not
        count."""
        bucket, _, prefix = self.root.partition("/")
        if self._is_s3 and bucket not in self._client.probed:
            listing = self._client.fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1, **limit)
            if listing.get("Name") != bucket:
                raise ResponseParserError("the response is not a listing of the bucket")
            self._client.probed.add(bucket)


class _BeyondEndError(Exception):
    """A range starts beyond the end of the file."""


@lru_cache(maxsize=8)
def _shared_client(environment: str, options: str) -> _Client:
    """Return the process's client for these variables; other values mean another account or server."""
    fs, _ = fsspec.core.url_to_fs("s3://bucket", use_listings_cache=False, skip_instance_cache=True, **_OPTIONS)
    fs.retries = 1
    return _Client(fs)


def _environment() -> str:
    """Return a digest of the variables that determine server and account."""
    variables = sorted((name, value) for name, value in os.environ.items() if name.startswith(("AWS_", "FSSPEC_")))
    return hashlib.sha256(repr((variables, os.getpid())).encode()).hexdigest()
