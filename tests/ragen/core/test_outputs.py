"""What commands write for users is there completely or not at all, wherever they are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.outputs import is_vacant, whole_file, whole_folder

WRITER = """
import os, sys
from pathlib import Path
from starpo.ragen.core import outputs

def at(point):
    if point == sys.argv[3]:
        os.kill(os.getpid(), 9)

Path.rename = Path.replace = lambda *_: at("end")
path = Path(sys.argv[2])
if sys.argv[1] == "file":
    with outputs.whole_file(path) as unfinished, unfinished.open("w") as stream:
        stream.write("new" * 100_000)
        at("middle")
else:
    with outputs.whole_folder(path) as unfinished:
        at("begin")
        (unfinished / "a").write_text("new")
        at("middle")
        (unfinished / "b").write_text("new")
"""


def kill(kind: str, path: Path, point: str) -> None:
    done = subprocess.run([sys.executable, "-c", WRITER, kind, str(path), point], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("point", ["begin", "middle", "end"])
@pytest.mark.parametrize("is_new", [True, False])
def test_killed_writer_leaves_folder_free(tmp_path: Path, point: str, is_new: bool) -> None:
    path = tmp_path / "parent" / "out"
    if not is_new:
        path.mkdir(parents=True)
    kill("folder", path, point)
    assert path.exists() != is_new
    assert is_vacant(path)
    with whole_folder(path) as unfinished:
        (unfinished / "a").write_text("whole")
    assert [file.name for file in path.iterdir() if not file.name.startswith(".")] == ["a"]
    assert not is_vacant(path)


@pytest.mark.parametrize("point", ["middle", "end"])
def test_killed_writer_leaves_earlier_file(tmp_path: Path, point: str) -> None:
    path = tmp_path / "page.html"
    kill("file", path, point)
    assert not path.exists()
    path.write_text("old")
    kill("file", path, point)
    assert path.read_text() == "old"


def fail(path: Path, error: BaseException) -> None:
    with whole_folder(path) as folder:
        (folder / "a").touch()
        raise error


def fill_meanwhile(path: Path) -> None:
    with whole_folder(path) as folder:
        (folder / "mine").touch()
        (path / "theirs").mkdir(parents=True)


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        fail(path, KeyboardInterrupt())
    with pytest.raises(ConfigError, match=r"folder .*/out cannot be written \(No space left"):
        fail(path, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="of something else"):
        fail(path, OSError("of something else"))
    with pytest.raises(ConfigError, match="cannot be written"):
        fill_meanwhile(path)
    assert [file.name for file in tmp_path.rglob("*")] == ["out", "theirs"]


def test_link_kept_and_permissions_passed_on(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    with whole_file(tmp_path / "link") as unfinished:
        unfinished.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]  # noqa: PTH208
