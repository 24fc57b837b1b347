"""A checkout whose links became text files fails at once, and says what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

import starpo


def test_checkout_without_links_says_so(tmp_path: Path) -> None:
    package = tmp_path / "starpo"
    package.mkdir()
    (package / "__init__.py").write_text(Path(starpo.__file__).read_text())
    for name in ("flows", "ragen", "schemas", "tasks"):
        (package / name).write_text(f"../{name}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import starpo.flows.cli"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "core.symlinks=true" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("program", "shows_place"), [("C:/bin/ragen.exe", False), ("script.py", True)])
def test_system_without_locks_pointed_to_wsl(program: str, shows_place: bool) -> None:
    """As Windows, which has neither module; the command prints the sentence alone."""
    code = f"import sys; sys.modules['fcntl'] = None; sys.argv = [{program!r}]; import starpo"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 1
    assert "install and start it in WSL" in process.stderr
    assert ("Traceback" in process.stderr) == shows_place
