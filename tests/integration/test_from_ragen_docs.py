"""docs/from-ragen.md: its commands run in order, and the settings that it names exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import setting

PAGE = (Path(__file__).parents[2] / "docs" / "from-ragen.md").read_text(encoding="utf-8")
INSTALL = "pip install starpo"
TABLE = [line.split("|")[2] for line in PAGE.splitlines() if line.startswith("| `")]
SETTINGS = [name for cell in TABLE for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)*)`", cell)]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_commands_of_the_page(shell: dict[str, str], tmp_path: Path) -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    commands = "\n".join(["set -euo pipefail", *blocks])
    work = tmp_path / "work"
    done = subprocess.run(["bash", "-c", commands], cwd=work, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert (work / "checkpoint-1" / "model.safetensors").is_file()
    assert "Smaller are:" in done.stdout


def test_the_table_has_settings() -> None:
    assert len(SETTINGS) > 30


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_the_table_exists(name: str) -> None:
    annotation: Any = StarPOConfig
    for key in name.split("."):
        annotation = setting(annotation, key)
        assert annotation is not None, name
