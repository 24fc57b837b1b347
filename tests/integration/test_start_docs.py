"""The pages under docs/start: every block of commands is followed, in a fresh folder."""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.flows.cli.commands import load
from tests.flows.command import ragen
from tests.integration.guides import commands_of

FOLDER = Path(__file__).parents[2] / "docs" / "start"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
INSTALL = "pip install 'starpo[openai]'"
SHORTER = {
    "--num-tasks 800": "--num-tasks 60",
    "starpo train agent.toml": "starpo train agent.toml --set policy.fine_tuning.steps=20 --set iterations=1 "
    "--set rollout.num_groups=2 --set evaluation.num_prompts=4 --set filter.should_drop_zero_variance=false",
    "starpo train stairs.toml": "starpo train stairs.toml --iterations 2 --set policy.warm_start_steps=40",
}
"""What makes a run of the pages shorter: as written, two of them take minutes."""


def commands(page: str, work: Path) -> list[list[str]]:
    """Return the words of each command of a page."""
    lines = "\n".join(commands_of(PAGES[page], work)).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_their_options(page: str, tmp_path: Path) -> None:
    """What the tests below follow in other tiers is at least a command with these options."""
    for program, *words in commands(page, tmp_path):
        if program == "starpo" and not words[0].startswith("-"):
            command = load(words.pop(0))
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context("", words)  # an option that does not exist ends it


def test_first_run_shows_what_it_says(
    begun: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page from its first line to its last; only the first checkpoint is there before."""
    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "var"))
    monkeypatch.delenv("STARPO_STORE", raising=False)
    begun(tmp_path / "var" / "store")
    printed = {}
    for program, *words in (*commands("install", tmp_path), *commands("first-run", tmp_path)):
        assert program == "starpo"
        quicker = ["--from", "1"] if words[0] == "verify" else []  # without the first checkpoint, which takes longest
        result = ragen(*words, *quicker, cwd=tmp_path)
        assert result.returncode == 0, (words, result.stderr)
        printed[" ".join(words[:2])] = result.stdout
    assert re.search(r"success +\S+ \[.*\] after 0 updates -> \S+ \[.*\] after 2 updates", printed["train smoke"])
    assert "stages are reused" in printed["train smoke"], "those before the filter, by the second run"
    assert printed["verify first"].rstrip().endswith("verified")
    assert "well_formed" in printed["sql first"]
    assert (tmp_path / "first.html").stat().st_size > 10_000


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_page_leads_to_its_end(page: str, shell: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    script = "\n".join(["set -euo pipefail", *commands_of(PAGES[page], work)])
    for text, shorter in SHORTER.items():
        script = script.replace(text, shorter)
    done = subprocess.run(["bash", "-c", script], cwd=work, env=shell, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
