"""A page of docs as a reader follows it: files that its blocks show, and commands."""

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(bash|toml|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:toml|py))\n")


def commands_of(page: str, work: Path) -> list[str]:
    """Write the files that blocks name in their first line into a folder; return the text of the shell's blocks."""
    commands = []
    for language, text in _BLOCK.findall(page):
        if language == "bash":
            commands.append(text)
        elif named := _FILE.match(text):
            (work / named[1]).write_text(text)
    return commands
