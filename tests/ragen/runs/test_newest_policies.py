"""Folders of the newest policies: two are kept, failures leave none, and those of dead processes are removed."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.runs import newest_policies
from starpo.ragen.runs.newest_policies import NewestPolicies, remove_ownerless


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    folders = [tmp_path / "disk", tmp_path / "memory"]
    for place in folders:
        place.mkdir()
    monkeypatch.setattr(newest_policies, "_places", lambda: folders)
    return folders


@pytest.fixture
def policies(places: list[Path]) -> Iterator[NewestPolicies]:
    made = NewestPolicies()
    yield made
    made.clear()
    assert [list(place.iterdir()) for place in places] == [[], []]


def add(policies: NewestPolicies, key: str, size_bytes: int = 1) -> Path:
    with policies.new(key, size_bytes) as folder:
        (folder / "model.safetensors").write_text(key)
        assert policies.find(key) != str(folder)
    return folder


def test_the_two_newest_are_kept(policies: NewestPolicies) -> None:
    folders = [add(policies, key) for key in ("a", "b", "c")]
    assert [policies.find(key) for key in ("a", "b", "c")] == [None, *map(str, folders[1:])]
    assert [folder.exists() for folder in folders] == [False, True, True]
    again = add(policies, "b")
    add(policies, "d")
    assert [policies.find(key) for key in ("b", "c")] == [str(again), None]


def test_policies_in_memory_if_ample(policies: NewestPolicies, places: list[Path]) -> None:
    assert add(policies, "a").is_relative_to(places[1])
    policies.clear()
    assert add(policies, "a", size_bytes=10**18).is_relative_to(places[0])


def test_failing_policy_leaves_nothing(policies: NewestPolicies) -> None:
    add(policies, "a")
    with (
        pytest.raises(StoreError, match=r"(?s)cannot be written to .*No space left.*TMPDIR"),
        policies.new("b", 1) as b,
    ):
        raise OSError(28, "No space left on device")
    with pytest.raises(ValueError, match="other"), policies.new("b", 1) as other:
        raise ValueError("other")
    assert not b.exists()
    assert not other.exists()
    assert policies.find("b") is None
    assert policies.find("a") is not None


def test_only_killed_processes_policies_are_removed(policies: NewestPolicies, places: list[Path]) -> None:
    ours = add(policies, "a")
    code = (
        "import sys, pathlib; from starpo.ragen.runs import newest_policies as n\n"
        "n._places = lambda: [pathlib.Path(sys.argv[1])]\n"
        "policies = n.NewestPolicies()\n"
        "with policies.new('k', 1): pass\n"
        "print(policies.find('k'), flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(places[1])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    remove_ownerless()
    assert theirs.is_dir()
    os.kill(other.pid, signal.SIGKILL)
    other.communicate()
    assert theirs.is_dir()
    remove_ownerless()
    assert not theirs.parent.exists()
    assert ours.is_dir()


def test_foreign_files_beside_them_are_kept(places: list[Path], tmp_path: Path) -> None:
    prefix, target = newest_policies._PREFIX, tmp_path / "target"
    target.mkdir()
    (places[0] / f"{prefix}file").touch()
    os.mkfifo(places[0] / f"{prefix}fifo")
    (places[0] / f"{prefix}itself").symlink_to(f"{prefix}itself")
    (places[0] / f"{prefix}link").symlink_to(target)
    (places[0] / f"{prefix}folder" / "lock").mkdir(parents=True)
    (places[0] / f"{prefix}links").mkdir()
    (places[0] / f"{prefix}links" / "lock").symlink_to(target / "made")
    theirs = places[1] / f"{prefix}theirs"
    theirs.mkdir()
    planted = sorted(places[0].iterdir())

    with pytest.MonkeyPatch.context() as other_user:
        other_user.setattr(os, "getuid", lambda: theirs.stat().st_uid + 1)
        remove_ownerless()
    assert theirs.is_dir()
    assert list(theirs.iterdir()) == []
    places.insert(0, tmp_path / "removed")
    remove_ownerless()
    assert sorted(places[1].iterdir()) == planted
    assert list(target.iterdir()) == []
    assert not theirs.exists()


def test_policies_on_disk_if_memory_full(
    policies: NewestPolicies, places: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def new_folder(*, prefix: str, dir: Path) -> str:
        if dir == places[1]:
            raise OSError(28, "No space left on device")
        return mkdtemp(prefix=prefix, dir=dir)

    mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", new_folder)
    assert add(policies, "a").is_relative_to(places[0])


def test_without_shared_memory_disk_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, which has no /dev/shm."""
    monkeypatch.setattr(newest_policies, "_MEMORY", tmp_path / "none")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    policies = NewestPolicies()
    assert add(policies, "a").is_relative_to(tmp_path)
    policies.clear()
    assert list(tmp_path.iterdir()) == []
