"""The commands of `ragen`, and how one is loaded when it is used.

A command is the function of the same name in the file of the same name, or, for a group, the `typer.Typer` called `app`
in that file. The first paragraph of its docstring is its line in `ragen --help`. The help parses the files without
importing them: the libraries that commands need take seconds to import, and help should be instant.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from starpo.ragen.core.gone import replaced

COMMANDS = {
    "Train": ("train", "fork", "follow", "cancel"),
    "Before a run": ("plan", "validate", "presets", "envs", "play", "new"),
    "Look at runs": (
        "runs",
        "show",
        "report",
        "diagnose",
        "compare",
        "sql",
        "audit",
        "lineage",
        "objectives",
    ),
    "Recompute": ("verify", "replay", "checkpoint"),
    "Studies": ("evaluate", "eval-sweep", "ablate"),
    "Stores and files": ("record", "import", "export", "store"),
    "Server": ("up", "down"),
}
"""Panel of `ragen --help` -> its commands, in this order."""
_PANELS = {command: panel for panel, commands in COMMANDS.items() for command in commands}
STYLE = {"rich_markup_mode": "rich", "pretty_exceptions_enable": False, "add_completion": False}
"""Typer options of every command."""


class Commands(TyperGroup):
    """Lazily loaded group of all commands. Click's types are Any here, as typer may bundle its own copy of click."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(_PANELS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stub of a command with its help text; None if there is no such command."""
        if cmd_name not in _PANELS:
            if hint := replaced("command", cmd_name):
                ctx.fail(f"No such command '{cmd_name}'{hint}")
            return None
        return TyperCommand(cmd_name, help=_help(cmd_name), rich_help_panel=_PANELS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Resolve the command in use and load it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and stub else stub, rest


def load(name: str) -> Any:
    """Import a command."""
    module = importlib.import_module(f"{__package__}.{_stem(name)}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(**STYLE)  # type: ignore[arg-type]
        app.command(name)(getattr(module, _stem(name)))
    return get_command(app)


def _stem(name: str) -> str:
    """Return the name of a command's file and function, adjusted where it would be a Python keyword."""
    return name.replace("-", "_") + "_" * (name == "import")


def _help(name: str) -> str:
    """Return the first paragraph of the docstring of a command's function, or of a group's callback."""
    stem = _stem(name)
    tree = ast.parse((Path(__file__).parent / f"{stem}.py").read_text(encoding="utf-8"))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == stem)
    return (ast.get_docstring(function) or "").partition("\n\n")[0]
