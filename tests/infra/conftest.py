"""Names of the project, against which the files of infra/ are checked."""

import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\bSTARPO_[A-Z_]+[A-Z]\b")


@pytest.fixture(scope="session")
def root() -> Path:
    """Root of the repository."""
    return _ROOT


@pytest.fixture(scope="session")
def documents() -> Callable[[str], list[Any]]:
    """Read all documents of a YAML file, by its path in infra/."""
    return lambda path: list(yaml.safe_load_all((_ROOT / "infra" / path).read_text()))


@pytest.fixture(scope="session")
def version(root: Path) -> str:
    """The project's version."""
    import tomllib

    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


@pytest.fixture(scope="session")
def roles(root: Path) -> set[str]:
    """Roles that `infra/images/start` accepts."""
    branches = re.findall(r"^(\S[\w |-]*)\)$", (root / "infra/images/start").read_text(), re.MULTILINE)
    return {role for branch in branches for role in branch.split(" | ")}


@pytest.fixture(scope="session")
def variables() -> set[str]:
    """Every STARPO_ variable that the project, or a script of infra/, reads."""
    from starpo.ragen.config.ray_runtime import RayRuntime
    from starpo.ragen.config.runtime import Runtime

    return {
        *(f"STARPO_{name.upper()}" for name in Runtime.model_fields),
        *(f"STARPO_RAY_{name.upper()}" for name in RayRuntime.model_fields),
        *("STARPO_BIN", "STARPO_HEAD_IP", "STARPO_REPOSITORY", "STARPO_PREFECT_PORT", "STARPO_RAY_PORT"),
    }


@pytest.fixture(scope="session")
def named_variables() -> Callable[[str], set[str]]:
    """Find the STARPO_ variables that a text names."""
    return lambda text: set(_VARIABLE.findall(text))


@pytest.fixture(scope="session")
def commands_of_ray() -> str:
    """Source of Ray's commands; importing it takes seconds."""
    ray = importlib.util.find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("Ray is not installed: pip install 'starpo[ray]'")
    return (Path(ray.origin).parent / "scripts/scripts.py").read_text()


@pytest.fixture
def stubs(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Make stand-in programs; returns their folder and the log of their calls: `bin, log = stubs(ray="exit 0")`."""

    def make(**programs: str) -> tuple[Path, Path]:
        folder, log = tmp_path / "bin", tmp_path / "calls"
        folder.mkdir()
        log.touch()
        for name, body in programs.items():
            program = folder / name
            program.write_text(f'#!/usr/bin/env bash\necho "{name} $*" >>{log}\n{body}\n')
            program.chmod(0o755)
        return folder, log

    return make


@pytest.fixture
def bare() -> dict[str, str]:
    """Environment variables without the user's own settings of this project, Ray, Prefect and AWS."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STARPO_", "RAY_", "PREFECT_", "AWS_"))
    }
