"""docs/programs.md, followed to the letter in a fresh environment, but for the lengths of its two trainings."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.guides import commands_of

PAGE = (Path(__file__).parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
INSTALL = "\n".join(re.findall(r"^pip install .*", PAGE, re.MULTILINE))
SHORTER = {
    "starpo train sokoban --local": {
        "policy.warm_start_steps": 150, "policy.demonstration_turns": 4000, "evaluation.num_prompts": 4
    },
    "starpo train mover.toml --local": {
        "iterations": 1, "rollout.num_groups": 2, "rollout.shard_groups": 2, "evaluation.num_prompts": 4
    },
}  # fmt: skip
"""Command -> settings that are added to it: as written, they take half an hour."""


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_page_leads_from_agent_to_run(shell: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    script = "\n".join(["set -euo pipefail", *commands_of(PAGE, work)])
    for command, settings in SHORTER.items():
        assert script.count(command) == 1
        added = (f"--set {name}={value}" for name, value in settings.items())
        script = script.replace(command, " ".join([command, *added]))
    done = subprocess.run(["bash", "-c", script], cwd=work, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "mover.toml: valid" in done.stdout
    assert re.search(r"success +\S+ \[.*\] after 0 updates -> \S+ \[.*\] after 1 update", done.stdout)
    assert re.search(r"run seen: 8 episodes, 0 failed, \d+ turns", done.stdout)
