"""README: short, and its commands exist with their options."""

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup

from starpo.flows.cli.commands import load

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted({
    command.split("  #")[0].strip()
    for command in [
        *re.findall(r"^(starpo [^\n]+)", "".join(re.findall(r"^```bash\n(.*?)^```", TEXT, re.M | re.S)), re.M),
        *re.findall(r"`(starpo [^`]+)`", TEXT),
    ]
})  # fmt: skip


def test_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 120


@pytest.mark.parametrize("command", COMMANDS)
def test_readme_command_exists(command: str) -> None:
    _, name, *rest = shlex.split(command)
    entry = load(name)
    if isinstance(entry, TyperGroup) and rest:
        entry = entry.commands[rest[0]]
    known = {option for parameter in entry.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("-")} <= known
