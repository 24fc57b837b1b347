"""All of infra/: valid YAML, sound scripts, names that exist, no secrets, no floating image tags."""

import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for path in (ROOT / "infra").rglob("*") if path.is_file() and path.name != ".env" and path.suffix != ".pyc"
)
YAML = [path for path in [ROOT / "prefect.yaml", *FILES] if path.suffix in (".yaml", ".yml")]
SCRIPTS = [path for path in FILES if path.read_bytes().startswith(b"#!/usr/bin/env bash")]
OURS = [
    path
    for path in FILES
    if path.relative_to(ROOT / "infra").parts[0] in ("compose", "images", "kubernetes", "offline", "slurm")
]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _tool(name: str) -> str:
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed: pip install 'starpo[test]'")
    return program


@pytest.mark.parametrize("path", YAML, ids=_name)
def test_yaml_has_no_key_twice(path: Path) -> None:
    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[str, object]:
        keys = [loader.construct_object(key) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        assert len(keys) == len(set(keys)), f"{_name(path)}: a key twice in {keys}"
        loader.flatten_mapping(node)
        return dict(loader.construct_pairs(node, deep=True))

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    assert list(yaml.load_all(path.read_text(), Strict))


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_a_script_is_sound(path: Path) -> None:
    assert path.stat().st_mode & 0o111, f"{_name(path)} cannot be executed"
    assert "set -euo pipefail" in path.read_text()
    subprocess.run(["bash", "-n", path], check=True)
    done = subprocess.run([_tool("shellcheck"), "--severity=style", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_every_variable_is_read_by_project(
    path: Path, variables: set[str], named_variables: Callable[[str], set[str]]
) -> None:
    assert named_variables(path.read_text()) <= variables


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_every_path_of_the_repository_exists(path: Path) -> None:
    named = re.findall(r"(?<![\w./])(?:/app/)?((?:infra|docs|flows|tests)/[\w./-]*\w)", path.read_text())
    made_by_use = {"infra/compose/.env"}
    assert [name for name in named if name not in made_by_use and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_project_imports_exist(path: Path) -> None:
    for module, name in re.findall(r"\bfrom (starpo[\w.]*) import (\w+)", path.read_text()):
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_no_secrets_no_floating_images(path: Path) -> None:
    text = path.read_text()
    assert ":latest" not in text
    assert not re.search(r"(PASSWORD|SECRET_ACCESS_KEY|AUTH_TOKEN|SECRET_KEY)\"?[:=] *['\"]?[A-Za-z0-9]{6,}", text)
    assert not re.search(r"AKIA[0-9A-Z]{12}|-----BEGIN", text)


@pytest.mark.parametrize("path", OURS, ids=_name)
def test_every_deployment_and_command_exists(path: Path) -> None:
    from starpo.flows.cli.commands import COMMANDS

    text = path.read_text()
    deployed = {f"{d['entrypoint'].rpartition('.')[2].replace('_', '-')}/{d['name']}" for d in _deployments()}
    flows = "|".join(sorted({name.split("/")[0] for name in deployed}))
    named = re.findall(rf"deployment (?:run|inspect) ((?:{flows}|[\w-]+)/[\w-]+)", text)
    assert set(named) <= deployed
    commands = {command for panel in COMMANDS.values() for command in panel}
    called = re.findall(r"^(?:in_worker |\$ |.*?\bexec )?starpo ([a-z][\w-]+)", text, re.MULTILINE)
    assert set(called) <= commands


def _deployments() -> list[dict[str, str]]:
    return list(yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"])
