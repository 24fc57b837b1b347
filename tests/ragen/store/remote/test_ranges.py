"""Reading a part of a stored file fetches only the requested bytes; a file that is not what was written is an error."""

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.remote.opening import open_location
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.manifest import Stage
from tests.examples import example

DATA = bytes(range(100))


def opened(calls: list[tuple[int, int]] | None = None, size: int = len(DATA)) -> RangeFile:
    def read_range(start: int, end: int) -> bytes:
        if calls is not None:
            calls.append((start, end))
        return DATA[start:end]

    return RangeFile(read_range, size)


@given(st.integers(0, 120), st.integers(0, 120))
def test_reads_match_in_memory_file(start: int, length: int) -> None:
    calls: list[tuple[int, int]] = []
    file, plain = opened(calls), io.BytesIO(DATA)
    assert file.seek(start) == plain.seek(start)
    assert file.read(length) == plain.read(length)
    assert file.tell() == plain.tell()
    assert sum(end - begin for begin, end in calls) == len(DATA[start : start + length])


def test_short_read_raises_os_error() -> None:
    file = opened(size=110)
    file.seek(95)
    with pytest.raises(OSError, match="5 bytes at 95, expected 15"):
        file.read(15)


@pytest.mark.parametrize("is_local", [True, False])
def test_a_location_reads_ranges(tmp_path: Path, is_local: bool) -> None:
    location = open_location(str(tmp_path) if is_local else "memory://ranges")
    location.replace("a/b", DATA)
    assert location.read_range("a/b", 10, 20) == DATA[10:20]
    assert location.read_range("a/b", 95, 200) == DATA[95:]
    with pytest.raises(FileNotFoundError):
        location.read_range("a/c", 0, 1)


def put(store: Store) -> None:
    work: dict[str, Any] = {"stage": Stage(name="s", version=1), "settings": {}, "inputs": {}, "seed": None}
    store.put_table("metrics", example("metrics"), Facts(key="k", **work))


def test_parts_of_a_dataset(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store)
    (part,) = store.parts("metrics", "k")
    assert isinstance(part, Path)
    assert part.is_file()
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(ArtifactDamagedError, match="bytes"):
        store.parts("metrics", "k")
    part.unlink()
    with pytest.raises(ArtifactDamagedError, match="missing"):
        store.parts("metrics", "k")


def test_parts_are_hashed_on_demand(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store)
    (part,) = store.parts("metrics", "k")
    assert isinstance(part, Path)
    content = bytearray(part.read_bytes())
    content[10] ^= 1
    part.write_bytes(content)
    assert store.parts("metrics", "k") == [part]
    with pytest.raises(ArtifactDamagedError, match="sha256"):
        store.parts("metrics", "k", should_verify=True)
