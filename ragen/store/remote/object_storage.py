"""`ObjectStorage`: what a store needs of S3 (or another remote fsspec file system), each call bounded in time.

A call that fails for a reason that may pass is repeated with growing random pauses. How long is bounded: seconds for a
server that has not answered yet, whose address is more likely wrong than its service down; a minute for one that has,
which outlasts a gateway's restart. Below, botocore repeats single requests, so that a part of a large file that fails
does not cost the whole file.

One client a process and account: its connections are kept, and what was read of files that never change is remembered.
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
"""Seconds to reach a server."""
READ_TIMEOUT_S = 20
"""Seconds a server may be silent."""
NUM_REQUEST_TRIES = 2
"""Tries of one request below a call."""
NUM_FIRST_TRIES = 3
"""Tries of a call to a server that has not answered yet."""
FIRST_PATIENCE_S = 20.0
"""Seconds for all of them."""
PATIENCE_S = 60.0
"""Seconds for all tries of a call to a server that has answered before, and a second more for every `SLOWEST` bytes."""
SLOWEST = 2**20
"""Bytes a second: a server that is slower than this is given up."""
PAUSE_S = 0.25
"""Longest pause before the second try; doubled before each further one, up to `MAX_PAUSE_S`."""
MAX_PAUSE_S = 8.0
PART_BYTES = 16 * 2**20
"""Larger files are sent and fetched in parts of this size."""
NUM_PARTS = 4
"""Parts of one file at a time."""

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
    """A file system, and what this process knows of what is there."""

    fs: Any
    has_answered: bool = False
    probed: set[str] = field(default_factory=set)
    remembered: "OrderedDict[str, bytes]" = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ObjectStorage:
    """A bucket, or a prefix in one. Paths are whole: bucket, '/', key.

    Every method raises `FileNotFoundError` where there is no such file, and a `StoreError` for all other failures.

    Attributes:
        root: The prefix, without a slash at the end.
    """

    def __init__(self, url: str, name: str) -> None:
        """`name` is what the address is called in messages."""
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
        """All bytes of a file."""
        options = {"max_concurrency": 1} if self._is_s3 else {}  # else its size is asked for first
        return self._call("read", path, lambda fs, limit: fs.cat_file(self._place(path), **options, **limit))

    def read_lasting(self, path: str) -> bytes:
        """The same of a file that never changes: asked for once a process, as long as nobody deletes it here."""
        place = self._place(path)
        with self._client.lock:
            known = self._client.remembered.get(place)
        return known if known is not None else self._remember(path, self.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`, or fewer where the file ends earlier."""
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
        """Write a small file unless there is one, in a single conditional put.

        An answer may be lost and the put repeated, below this library or by it; so a file that is there and holds these
        very bytes was written by this call. The bytes must be this writer's alone.

        Returns:
            False: there is one, with other bytes.
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
            except FileNotFoundError:  # removed this moment
                return False
        return True

    def remember(self, path: str, data: bytes) -> None:
        """These bytes were just written there, and never change."""
        self._remember(path, data)

    def forget(self, path: str) -> None:
        """It may have changed after all."""
        with self._client.lock:
            self._client.remembered.pop(self._place(path), None)

    def names(self, folder: str) -> list[str]:
        """Names of what is directly in a folder, by one listing; empty where there is nothing."""
        if not folder:
            found = self._call("list", folder, lambda fs, limit: fs.ls(self.root, detail=False, **limit))
        elif self._is_s3:
            found = self._call(
                "list",
                folder,
                lambda fs, limit: fs.find(self.root, maxdepth=1, withdirs=True, prefix=f"{folder}/", **limit),
            )
        else:
            found = self._call("list", folder, lambda fs, limit: fs.ls(self._place(folder), detail=False))
        return [entry.rstrip("/").rsplit("/", 1)[-1] for entry in found]

    def files(self, folder: str) -> dict[str, dict[str, Any]]:
        """Path relative to the root -> what a listing says, of all files in a folder and below it."""
        if self._is_s3 and folder:
            found = self._call(
                "list", folder, lambda fs, limit: fs.find(self.root, prefix=f"{folder}/", detail=True, **limit)
            )
        else:
            found = self._call("list", folder, lambda fs, limit: fs.find(self._place(folder), detail=True, **limit))
        start = len(self.root.lstrip("/")) + 1
        return {name.lstrip("/")[start:]: info for name, info in found.items()}

    def digest(self, path: str) -> tuple[str, int]:
        """SHA-256 (64 hex digits) and size in bytes of a file, read in parts."""
        sha256, size_bytes = hashlib.sha256(), 0
        while True:
            block = self.read_range(path, size_bytes, size_bytes + PART_BYTES)
            sha256.update(block)
            size_bytes += len(block)
            if len(block) < PART_BYTES:
                return sha256.hexdigest(), size_bytes

    def upload(self, file: Path, path: str) -> None:
        """Copy a local file here, a large one in several parts at a time."""
        size_bytes = file.stat().st_size
        options: dict[str, Any] = {}
        if self._is_s3:  # which takes 10,000 parts at most
            options = {"chunksize": max(PART_BYTES, -(-size_bytes // 10_000)), "max_concurrency": NUM_PARTS}
        self._call(
            "write", path, lambda fs, limit: fs.put_file(str(file), self._place(path), **options, **limit), size_bytes
        )

    def download(self, path: str, file: Path, size_bytes: int) -> None:
        """Copy a file from here, a large one in several parts at a time; each is asked for again until it is whole.

        Args:
            path: The file.
            file: Where to.
            size_bytes: Its size. Where it has another, what comes is written all the same.
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
        """The error to raise where something at `path` could not be done."""
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
        """Call with the file system and a limit of seconds; repeat what may pass; translate what does not.

        Raises:
            FileNotFoundError: If there is no such file.
            FileExistsError: If there is one.
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
        except Exception as error:  # botocore's and aiohttp's errors share no base but this one
            failure = failure_of(error)
            if failure is None:
                raise
            if failure.is_passing:  # whatever is tried next fails sooner
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
        """Once a process and bucket: does what answers speak S3, and is there this bucket? A page with words is not."""
        bucket, _, prefix = self.root.partition("/")
        if self._is_s3 and bucket not in self._client.probed:
            found = self._client.fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1, **limit)
            if found.get("Name") != bucket:
                raise ResponseParserError("a page was answered, and no listing of the bucket")
            self._client.probed.add(bucket)


class _BeyondEndError(Exception):
    """A range begins where the file has ended."""


@lru_cache(maxsize=8)
def _shared_client(environment: str, options: str) -> _Client:
    """The process's client for these variables: others are another account, or another server."""
    fs, _ = fsspec.core.url_to_fs("s3://bucket", use_listings_cache=False, skip_instance_cache=True, **_OPTIONS)
    fs.retries = 1
    return _Client(fs)


def _environment() -> str:
    """Digest of what decides whom a client talks to, and as whom."""
    found = sorted((name, value) for name, value in os.environ.items() if name.startswith(("AWS_", "FSSPEC_")))
    return hashlib.sha256(repr((found, os.getpid())).encode()).hexdigest()
