"""The pages under docs/start: every block of commands is followed, in a fresh folder."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from starpo.flows.cli.commands import load
from tests.integration.guides import commands_of

FOLDER = Path(__file__).parents[2] / "docs" / "start"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in sorted(FOLDER.glob("*.md"))}
INSTALL = "pip install 'starpo[openai]'"
SHORTER = {
    "starpo train sokoban\n": "starpo train sokoban --iterations 1 --set policy.warm_start_steps=20 "
    "--set policy.demonstration_turns=1000 --set rollout.num_groups=4 --set evaluation.num_prompts=8 "
    "--set filter.should_drop_zero_variance=false\n",
    "--num-tasks 800": "--num-tasks 60",
    "starpo train agent.toml": "starpo train agent.toml --set policy.fine_tuning.steps=20 --set iterations=1 "
    "--set rollout.num_groups=2 --set evaluation.num_prompts=4 --set filter.should_drop_zero_variance=false",
    "starpo train stairs.toml": "starpo train stairs.toml --iterations 2 --set policy.warm_start_steps=40",
}
"""What makes a run of the pages shorter: as written, three of them take minutes."""


def commands(page: str, work: Path) -> list[list[str]]:
    """Return the words of each command of a page."""
    lines = "\n".join(commands_of(PAGES[page], work)).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_their_options(page: str, tmp_path: Path) -> None:
    """Quick: the test below, which follows the pages, is of another tier."""
    for program, *words in commands(page, tmp_path):
        if program == "starpo" and not words[0].startswith("-"):
            command = load(words.pop(0))
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context("", words)  # an option that does not exist ends it


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run(page: str) -> None:
    """Blocks of `bash` below; that of `sh`, which installs, by `test_fresh_environments.py`."""
    languages = re.findall(r"^```(\w+)$", PAGES[page], re.MULTILINE)
    assert languages.count("sh") == (page == "install")
    assert set(languages) <= {"bash", "sh"}
    assert not re.search(r"^    starpo ", PAGES[page], re.MULTILINE), "a block without a language"


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # Prefect's processes take minutes to start on busy cores
@pytest.mark.parametrize("page", PAGES)
def test_page_leads_to_its_end(page: str, shell: dict[str, str], tmp_path: Path) -> None:
    work, log = tmp_path / "work", tmp_path / "log"
    script = "\n".join(["set -euxo pipefail", *commands_of(PAGES[page], work)])
    for text, shorter in SHORTER.items():
        script = script.replace(text, shorter)
    try:
        with log.open("w") as output:
            done = subprocess.run(["bash", "-c", script], cwd=work, env=shell, stdout=output, stderr=subprocess.STDOUT)
    finally:
        printed = log.read_text(encoding="utf-8")
        print(printed[-4000:])  # shown if the test fails, also by its time limit: the last command stands after a +
    assert done.returncode == 0
    if page == "first-run":
        assert "stages are reused" in printed, "by the second run"
        assert re.search(r": verified$", printed, re.MULTILINE)
        assert re.search(r"-> .* after 1 update$", printed, re.MULTILINE), "the run on the server"
