"""The wheel in fresh environments: each Python of this machine that it allows, and the extras that resolve together.

Asks a package index, and downloads gigabytes of torch where pip has not got them yet. With three versions of Python,
13 minutes of processor time, extras not counted.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = int(PROJECT["requires-python"].rpartition(".")[2])
ALONE = {"vllm"}
"""Extras that cannot be installed beside Prefect."""
SUITES = {"verifiers", "openenv", "alfworld", "textarena"}
"""Extras of suites, each tested by itself."""
TOGETHER = sorted(set(PROJECT["optional-dependencies"]) - ALONE - SUITES - {"test"})

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(3600)]


def interpreters() -> dict[str, str]:
    """Version -> path of each Python that the package allows: on PATH, or made by pyenv."""
    pythons = {}
    for minor in range(OLDEST, 20):
        made = [str(path) for path in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        if paths := [*filter(None, [shutil.which(f"python3.{minor}")]), *made]:
            pythons[f"3.{minor}"] = paths[-1]
    return pythons


def environment(python: str, folder: Path) -> Path:
    """Make an environment and return its folder of programs."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder / "bin"


@pytest.mark.parametrize("version", interpreters())
def test_wheel_trains_and_verifies(version: str, wheel: Path, tmp_path: Path) -> None:
    programs = environment(interpreters()[version], tmp_path / "environment")
    subprocess.run([programs / "pip", "install", "-q", str(wheel)], check=True)
    for command in ("train smoke --local --run first", "verify first"):
        done = subprocess.run([programs / "starpo", *command.split()], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r": verified$", done.stdout.rstrip())


def test_install_page_leads_to_demo(tmp_path: Path) -> None:
    """As in a clone: a copy without what git leaves out, in which the page's `sh` block installs."""
    clone = tmp_path / "clone"
    for name in ("starpo", "flows", "tasks", "ragen", "schemas"):
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    page = (ROOT / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:ba)?sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = "\n".join(["set -euo pipefail", f"cd {shlex.quote(str(clone))}", blocks[0], "cd ..", *blocks[1:]])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert f"starpo {PROJECT['version']}" in done.stdout
    assert "after 12 updates" in done.stdout


@pytest.mark.parametrize("extras", [TOGETHER, *([suite] for suite in sorted(SUITES))], ids=",".join)
def test_extras_resolve(extras: list[str], wheel: Path) -> None:
    """Together in the versions that were tested; a suite as its users install it, which may need older ones."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "-q"]
    pip += ["-c", str(ROOT / "constraints.txt")] if extras is TOGETHER else []
    request = [f"starpo[{','.join(extras)}] @ {wheel.as_uri()}", "--report", "-"]
    done = subprocess.run([*pip, *request], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {"starpo"} <= {one["metadata"]["name"] for one in report["install"]}
