"""What the wheel holds beside modules, and that the source distribution makes the same one."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_wheel_holds_files_modules_read(wheel: Path) -> None:
    files = (path for name in ("flows", "ragen", "schemas", "tasks") for path in (ROOT / name).rglob("*.*"))
    read = {f"starpo/{path.relative_to(ROOT)}" for path in files if path.suffix not in (".py", ".pyc")}
    assert any("chat_templates" in name for name in read)
    assert read <= set(zipfile.ZipFile(wheel).namelist())


def test_source_distribution_makes_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Tests, which setuptools adds by their names, are not in it: they need files that it lacks."""
    source = Path(shutil.copytree(wheel.parent / "source", tmp_path / "source", symlinks=True))
    (source / "tests").mkdir()
    (source / "tests" / "test_wheel.py").touch()
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        assert not [name for name in packed.getnames() if "/tests" in name]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(archive)], check=True)
    assert contents(tmp_path / wheel.name) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the bytes of each file of a wheel; its list of them is written in another order."""
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/RECORD")}
