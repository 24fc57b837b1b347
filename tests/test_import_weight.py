"""Heavy packages are imported where they are used, so that `--help`, validation and listings answer at once."""

import subprocess
import sys

LIGHT = [
    "schemas.datasets",
    "schemas.manifest",
    "schemas.validate",
    "ragen.config",
    "ragen.config.load",
    "ragen.registry",
    "ragen.envs",
    "ragen.envs.variants",
    "ragen.store",
    "ragen.agent.parser",
    "flows.cli",
    "flows.presets",
    "flows.starpo",
    "tasks.rollout",
    "tasks.update",
    "tasks.evaluate",
    "tasks.warm_start",
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
    code = "import sys, flows.cli; print('prefect' in sys.modules or 'pyarrow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
