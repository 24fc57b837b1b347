"""A package outside, installed, has its command, preset, grid, environment with scene, engine and learner in ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci
COMMANDS = '''
import typer

app = typer.Typer()


@app.command()
def first(name: str) -> None:
    """Greet."""
    print(f"hello {name}")


@app.command()
def second() -> None:
    """Part."""


def greet(name: str, loud: bool = False) -> None:
    """Greet somebody."""
    print(f"hello {name}{'!' * loud}")


number = 3
'''
ENVIRONMENT = '''
from typing import Literal

from starpo.ragen.envs.sokoban.environment import Sokoban, SokobanSettings


class WarehouseSettings(SokobanSettings):
    """Sokoban under another name."""

    type: Literal["warehouse"] = "warehouse"


class Warehouse(Sokoban):
    settings_type = WarehouseSettings
'''
PLAYERS = '''
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.learning.learners.torch_learner import TorchLearner


class Fast(TorchEngine):
    """An engine of our own."""


class Sharded(TorchLearner):
    """A learner of our own."""
'''
SETTINGS = '''
from starpo.ragen.config.engine import EngineConfig
from starpo.ragen.config.learner import LearnerConfig


class FastConfig(EngineConfig):
    """How the engine is fast."""

    share: float = 0.5


class ShardedConfig(LearnerConfig):
    """How the learner shards."""

    num_parts: int = 2
'''
PRESET = """# A warehouse, played fast.
extends = ["sokoban", "brief"]
[environment]
type = "warehouse"
[reward]
components = ["environment", "grounding"]
[agent]
form = "grounding"
[rollout]
engine = "fast"
max_context_tokens = 512
fast = { share = 0.75 }
[update]
learner = "sharded"
"""
POINTS = {
    "commands": {"greet": "acme.cli:greet", "acme": "acme.cli:app"},
    "presets": {"acme": "acme.presets"},
    "grids": {"acme": "acme.grids"},
    "environments": {"warehouse": "acme.environment:Warehouse"},
    "scenes": {"warehouse": "starpo.ragen.envs.sokoban.scene:scene"},
    "engines": {"fast": "acme.players:Fast"},
    "engines.options": {"fast": "acme.settings:FastConfig"},
    "learners": {"sharded": "acme.players:Sharded"},
    "learners.options": {"sharded": "acme.settings:ShardedConfig"},
}
BROKEN = {
    "commands": {
        "train": "broken:train",
        "quits": "broken_quits:run",
        "number": "acme.cli:number",
        "old": "gone:it",
    },
    "presets": {"a": "broken_quits.presets", "b": "acme.cli", "c": "twice.presets"},
}


def install(folder: Path, name: str, points: dict[str, dict[str, str]]) -> None:
    facts = folder / f"{name}-1.5.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    groups = ("\n".join([f"[starpo.{g}]", *(f"{k} = {v}" for k, v in e.items())]) for g, e in points.items())
    (facts / "entry_points.txt").write_text("\n".join(groups) + "\n")


def starpo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    state = {"STARPO_STATE_DIR": str(folder / "state"), "STARPO_STORE": str(folder / "store")}
    return subprocess.run(
        [sys.executable, "-m", "starpo.flows.cli", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **state},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder, "starpo-acme", POINTS)
    for part in ("", "presets", "grids"):
        (folder / "acme" / part).mkdir()
        (folder / "acme" / part / "__init__.py").touch()
    for module, text in {
        "cli": COMMANDS, "environment": ENVIRONMENT, "players": PLAYERS, "settings": SETTINGS
    }.items():  # fmt: skip
        (folder / f"acme/{module}.py").write_text(text)
    (folder / "acme/presets/warehouse-fast.toml").write_text(PRESET)
    (folder / "acme/grids/warehouse-grid.toml").write_text(
        '# Two shares.\npreset = "warehouse-fast"\nseeds = [0, 1, 2]\n[axes]\nfilter.keep = [0.5, 1.0]\n'
    )
    return folder


@pytest.fixture(scope="module")
def broken(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same beside a package that does everything wrong."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "acme").symlink_to(site / "acme")
    install(folder, "starpo-acme", POINTS)
    install(folder, "zz-broken", BROKEN)
    (folder / "broken_quits").mkdir()
    (folder / "broken_quits/__init__.py").write_text("raise SystemExit(0)\n")
    (folder / "twice/presets").mkdir(parents=True)
    (folder / "twice/presets/sokoban.toml").write_text("")
    return folder


def test_commands_in_help_and_runnable(site: Path) -> None:
    shown = starpo(site, "--help").stdout
    assert "Of installed packages" in shown
    assert "Of starpo-acme 1.5." in shown
    assert starpo(site, "greet", "you", "--loud").stdout == "hello you!\n"
    assert starpo(site, "acme", "first", "you").stdout == "hello you\n"


def test_preset_uses_all_package_parts(site: Path) -> None:
    (row,) = (row for row in json.loads(starpo(site, "presets", "--json").stdout) if row["preset"] == "warehouse-fast")
    assert row["about"] == "A warehouse, played fast. Of starpo-acme 1.5."
    settings = json.loads(starpo(site, "validate", "warehouse-fast", "--settings").stdout)
    assert settings["rollout"]["fast"] == {"share": 0.75}
    assert (settings["rollout"]["engine"], settings["update"]["learner"]) == ("fast", "sharded")
    assert settings["environment"]["type"] == "warehouse"
    (site / "mine.toml").write_text('extends = ["warehouse-fast"]\niterations = 3\n')
    assert json.loads(starpo(site, "validate", "mine.toml", "--settings").stdout)["iterations"] == 3
    assert "warehouse-grid" in starpo(site, "ablate", "--list").stdout


def test_faulty_package_named_others_work(broken: Path) -> None:
    shown = starpo(broken, "--help")
    assert "'train' is a built-in name and one of zz-broken 1.5" in " ".join(shown.stdout.split())
    assert "Train with a preset" in shown.stdout
    assert starpo(broken, "greet", "you").stdout == "hello you\n"
    for command, message in {
        "quits": "'quits' (registered as broken_quits:run) cannot be loaded: ",
        "old": "'old' (registered as gone:it) cannot be loaded: ",
        "number": "command 'number' of zz-broken 1.5 (acme.cli:number) is int; expected a typer.Typer or a function",
    }.items():
        refused = starpo(broken, command)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert message in refused.stderr
    listed = starpo(broken, "presets", "--json")
    assert "warehouse-fast" in listed.stdout
    for message in (
        "zz-broken 1.5: 'broken_quits.presets' cannot be imported: ",
        "zz-broken 1.5: 'acme.cli' (group starpo.presets) is no package, whose folder holds the files",
        "zz-broken 1.5: sokoban.toml is not used, since 'sokoban' is a built-in name: rename it",
    ):
        assert message in " ".join(listed.stderr.split())
