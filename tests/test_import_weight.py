"""Heavy packages are imported only where they are used, so that `--help`, validation and listings are fast."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.ragen.store import Store

MakeRun = Callable[..., list[tuple[str, str]]]

LIGHT = [
    "starpo.schemas.datasets",
    "starpo.schemas.manifest",
    "starpo.schemas.validate",
    "starpo.ragen.config",
    "starpo.ragen.config.load",
    "starpo.ragen.core.registry",
    "starpo.ragen.envs",
    "starpo.ragen.envs.variants",
    "starpo.ragen.store",
    "starpo.ragen.agents.prompting.parser",
    "starpo.flows.cli",
    "starpo.flows.cli.verify",
    "starpo.flows.presets",
    "starpo.flows.api.opened_run",
    "starpo.flows.api.scripting",
    "starpo.flows.starpo",
    "starpo.tasks.rollout",
    "starpo.tasks.update",
    "starpo.tasks.evaluate",
    "starpo.tasks.warm_start",
]
HEAVY = ("torch", "transformers", "vllm", "ray", "deepspeed", "wandb")


@pytest.mark.ci
def test_imports_are_light() -> None:
    code = (
        f"import importlib, sys\nfor module in {LIGHT!r}:\n    importlib.import_module(module)\n"
        f"    print(module, *(set({HEAVY!r}) & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == LIGHT, "the first with more than its name is the one that imports it"


@pytest.mark.ci
def test_help_does_not_import_prefect() -> None:
    code = (
        "import sys\nfrom starpo.flows.cli import app\napp(['--help'], standalone_mode=False)\n"
        "print({'prefect', 'pyarrow'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in result.stdout
    assert result.stdout.endswith("set()\n")


STARTED = """
import sys
from starpo.flows.cli import app
app({arguments!r}, standalone_mode=False)
print(*({packages!r} & set(sys.modules)))
"""
SETTINGS, RULES = {"starpo.ragen.config.starpo", "jsonschema"}, {"pandera", "polars"}
REST = {*HEAVY, "prefect", "duckdb", "matplotlib", "starpo.ragen.envs"}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (["runs"], SETTINGS | RULES | REST),
        (["runs", "--tree"], RULES | REST - {"starpo.ragen.envs"}),
        (["show", "mine"], SETTINGS | RULES | REST),
        (["show", "mine", "--iteration", "0"], SETTINGS | REST),
        (["diagnose", "mine", "--every", "0"], REST - {"starpo.ragen.envs"}),
        (["audit", "mine"], {"torch", "prefect", "matplotlib"}),
        (["report", "mine", "-o", "page.html"], {"torch", "prefect"}),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",  # a set has another order in every process
)
def test_command_loads_only_used_modules(
    store: Store, make_run: MakeRun, tmp_path: Path, command: list[str], unused: set[str]
) -> None:
    make_run(store, "mine")
    code = STARTED.format(arguments=[*command, "--store", store.url], packages=unused)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.splitlines()[-1] == ""
