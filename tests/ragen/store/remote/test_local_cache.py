"""Copies of remote artifacts are kept and marked as used; the oldest are deleted first, and none that is in use."""

import logging
import os
import time
from pathlib import Path

import pytest

from starpo.ragen.store.remote import local_cache


def put(digest: str, size_bytes: int, used_s_ago: float) -> Path:
    part = local_cache.scratch_folder()
    (part / "file").write_bytes(bytes(size_bytes))
    copy = local_cache.adopt(part, digest)
    os.utime(copy, (time.time() - used_s_ago,) * 2)
    return copy


def test_cached_copy_is_marked_used(cache: Path) -> None:
    assert local_cache.copy_of("a") is None
    copy = put("a", 10, used_s_ago=9999)
    assert local_cache.copy_of("a") == copy == cache / "a"
    assert time.time() - copy.stat().st_mtime < 100
    local_cache.forget("a")
    assert local_cache.copy_of("a") is None


def test_the_first_copy_stays(cache: Path) -> None:
    first = put("a", 10, used_s_ago=0)
    assert put("a", 20, used_s_ago=0) == first
    assert (first / "file").stat().st_size == 10


def test_trim_deletes_oldest_not_in_use(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, older, in_use = (digit * 64 for digit in "012")
    for name, used_s_ago in {old: 9000, older: 10_000, in_use: 60}.items():
        put(name, 100, used_s_ago)
    local_cache.trim(300)
    assert len(list(cache.iterdir())) == 3
    local_cache.trim(250)
    assert {path.name for path in cache.iterdir()} == {old, in_use}
    with caplog.at_level(logging.WARNING):
        local_cache.trim(50)
    assert {path.name for path in cache.iterdir()} == {in_use}
    assert "more than STARPO_CACHE_GB" in caplog.text


def test_linked_copies_take_no_space(cache: Path) -> None:
    """Folders of checkpoints with adapters link to the weights of their base."""
    copy = put("0" * 64, 1000, used_s_ago=9000)
    for number in range(5):
        folder = cache / "complete" / str(number)
        folder.mkdir(parents=True)
        (folder / "model.safetensors").symlink_to(copy / "file")
    local_cache.trim(2000)
    assert copy.is_dir()


def test_abandoned_scratch_is_trimmed_after_day(cache: Path) -> None:
    fresh, abandoned = local_cache.scratch_folder(), local_cache.scratch_folder()
    os.utime(abandoned, (time.time() - 2 * 24 * 3600,) * 2)
    local_cache.trim(10**9)
    assert list(cache.iterdir()) == [fresh]
