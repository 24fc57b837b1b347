"""Heavy packages are imported only where they are used, so that `--help`, validation and listings are fast."""

import subprocess
import sys

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
    "starpo.flows.presets",
    "starpo.flows.opened_run",
    "starpo.flows.scripting",
    "starpo.flows.starpo",
    "starpo.tasks.rollout",
    "starpo.tasks.update",
    "starpo.tasks.evaluate",
    "starpo.tasks.warm_start",
]
HEAVY = ("torch", "transformers", "vllm", "ray", "deepspeed", "wandb")


def test_imports_are_light() -> None:
    code = (
        f"import importlib, sys\nfor module in {LIGHT!r}:\n    importlib.import_module(module)\n"
        f"    print(module, *(set({HEAVY!r}) & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == LIGHT, "the first with more than its name is the one that imports it"


def test_help_does_not_import_prefect() -> None:
    code = (
        "import sys\nfrom starpo.flows.cli import app\napp(['--help'], standalone_mode=False)\n"
        "print({'prefect', 'pyarrow'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in result.stdout
    assert result.stdout.endswith("set()\n")
