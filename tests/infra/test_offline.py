"""The kit for a machine without a network: what stands in for its packages, and what `unpack` refuses."""

import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def pack(root: Path) -> ModuleType:
    """The module `pack.py`."""
    spec = importlib.util.spec_from_file_location("pack", root / "infra/offline/pack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def kit(pack: ModuleType, root: Path, tmp_path: Path) -> Path:
    """Kit of three slices that holds one file."""
    with tarfile.open(tmp_path / "kit.tar", "w") as tar:
        entry = tarfile.TarInfo("project/file")
        entry.size = 5000
        tar.addfile(entry, io.BytesIO(os.urandom(5000)))
    folder = tmp_path / "kit"
    folder.mkdir()
    pack.write_slices(tmp_path / "kit.tar", folder, 4096)
    shutil.copy(root / "infra/offline/unpack", folder)
    return folder


def unpacked(kit: Path, python: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": python}
    command = [str(kit / "unpack"), str(kit.parent / "there")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_slices_join_to_archive_within_size(kit: Path) -> None:
    slices = sorted(kit.glob("kit.*"))
    assert [path.stat().st_size for path in slices] == [4096, 4096, 2048]
    assert b"".join(path.read_bytes() for path in slices) == (kit.parent / "kit.tar").read_bytes()


@pytest.mark.parametrize("is_missing", [True, False])
def test_bad_slice_named_and_nothing_written(kit: Path, is_missing: bool) -> None:
    slice_ = kit / "kit.001"
    if is_missing:
        slice_.unlink()
    else:
        content = slice_.read_bytes()
        slice_.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    done = unpacked(kit, sys.executable)
    assert done.returncode == 1
    assert "kit.001" in done.stdout + done.stderr
    assert "error: slices are damaged or missing" in done.stderr
    assert not (kit.parent / "there").exists()


def test_an_interpreter_without_torch_is_refused(kit: Path, stubs: Callable[..., tuple[Path, Path]]) -> None:
    folder, _ = stubs(python3="exit 1")
    done = unpacked(kit, str(folder / "python3"))
    assert done.returncode == 1
    assert done.stderr == f"error: {folder}/python3 lacks torch or transformers; set PYTHON to one that has them\n"
    assert not (kit.parent / "there").exists()


def test_pip_uses_stub_for_present_package(pack: ModuleType, tmp_path: Path) -> None:
    (pinned,) = pack.pinned("# of the node\nTorch_Audio==2.11.0+cu130\n-e /src/mine\n").items()
    assert pinned == ("torch-audio", "2.11.0")
    pack.write_stub(tmp_path, *pinned)
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--find-links", str(tmp_path)]
    done = subprocess.run([*pip, "torch_audio==2.11.0"], capture_output=True, text=True, check=True)
    assert "torch-audio-2.11.0+found" in done.stdout
