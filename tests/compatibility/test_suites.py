"""Suites whose packages do not fit into the main environment: their adapters play the unmodified packages.

The cases of a suite are tests in `suites/`, run by pytest in an environment with the package and with what
`starpo.ragen.envs` imports, without torch and Prefect.
"""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.compatibility.environments import make_python

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = ("numpy", "pydantic", "jsonschema")
CASES = {"textarena": "textarena_games.py", "openenv": "openenv_servers.py"}
"""Suite -> the file of its tests."""


def packages(suite: str) -> list[str]:
    """Requirements of a suite, of the environments' own code, and of the tests."""
    base = [spec for spec in PROJECT["dependencies"] if re.match(r"[\w-]+", spec)[0] in BASE]
    assert len(base) == len(BASE)
    return [*PROJECT["optional-dependencies"][suite], *base, "pytest>=8.0"]


@pytest.mark.parametrize("suite", CASES)
def test_suite_plays_its_package(suite, tmp_path):
    python = make_python(suite, packages(suite))
    command = [python, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "--basetemp", tmp_path / "temp"]
    played = subprocess.run(
        [*command, "-o", "addopts=--import-mode=importlib", Path(__file__).parent / "suites" / CASES[suite]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert played.returncode == 0, played.stdout[-4000:] + played.stderr[-2000:]
    assert re.search(r"\d+ passed", played.stdout), played.stdout
    assert "skipped" not in played.stdout
