"""`starpo skill`: the skill for coding agents, copied to where they look for it."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption
from starpo.flows.console.documents.stores import InstalledSkill
from starpo.flows.console.pages import write_page
from starpo.flows.console.terminal import print_json, write
from starpo.ragen.core.errors import ConfigError

_USUAL = Path(".claude/skills/starpo")


def skill(
    folder: Annotated[
        Path, typer.Argument(help="Where your coding agent looks for skills, such as ~/.claude/skills/starpo.")
    ] = _USUAL,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there and differ.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy the skill that tells a coding agent how to start, watch, query, compare and verify runs."""
    shipped = {
        folder.expanduser() / file.name: file.read_text(encoding="utf-8")
        for file in sorted((files(__package__) / "templates" / "skill").iterdir(), key=lambda file: file.name)
    }
    changed = [path for path, text in shipped.items() if path.exists() and path.read_text(encoding="utf-8") != text]
    if changed and not force:
        raise ConfigError(
            f"{', '.join(map(str, changed))}: there already, and not as shipped; nothing was written. --force replaces "
            "it, or name another folder"
        )
    new = [path for path in shipped if path in changed or not path.exists()]
    for path in new:
        write_page(path, shipped[path], "choose a folder that you may write to")
    if as_json:
        print_json(InstalledSkill(files=[str(path) for path in shipped], new=[str(path) for path in new]))
        return
    for path in shipped:
        write(f"{'wrote' if path in new else 'is there'} {path}")
