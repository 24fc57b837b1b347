"""Heavy packages are imported where they are used, so that `--help`, validation and listings answer at once."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("module", LIGHT)
def test_import_is_light(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_help_does_not_import_prefect() -> None:
    code = "import sys, flows.cli; print('prefect' in sys.modules or 'pyarrow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
