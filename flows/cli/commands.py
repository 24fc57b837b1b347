"""The commands of `starpo`, and how one is loaded when it is used.

A command is the function of the same name in the file of the same name, or, for a group, the `typer.Typer` called `app`
in that file. The commands of a room are declared in its folder (`ragen.core.rooms`): `module:attribute`, the panel and
the place in it. The first paragraph of its docstring is its line in `starpo --help`. The help parses the files without
importing them: the libraries that commands need take seconds to import, and help should be instant.
"""

import ast
import importlib
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.gone import replaced
from starpo.ragen.core.rooms import declared

if TYPE_CHECKING:
    from starpo.ragen.core.lookup import Registry

_HERE = {
    "Train": ("demo", "train", "fork", "follow", "cancel"),
    "Before a run": ("validate", "presets", "envs", "play", "new"),
    "Look at runs": (
        *("runs", "view", "show", "report", "diagnose", "compare", "sql", "audit", "lineage", "objectives", "credit"),
    ),
    "Recompute": ("verify", "replay", "checkpoint"),
    "Studies": (),
    "Stores and files": ("store",),
    "Server": ("up", "down"),
    "For coding agents": ("skill", "schema"),
}
_OF_ROOMS = declared("commands")


def _with_rooms() -> dict[str, tuple[str, ...]]:
    """Return the panels, with each command of a room at its place, counted from 0."""
    panels = {panel: list(commands) for panel, commands in _HERE.items()}
    for name, command in sorted(_OF_ROOMS.items(), key=lambda item: item[1]["place"]):
        panels[command["panel"]].insert(command["place"], name)
    return {panel: tuple(commands) for panel, commands in panels.items()}


COMMANDS = _with_rooms()
"""Panel of `starpo --help` -> its commands, in this order."""
_PANELS = {command: panel for panel, commands in COMMANDS.items() for command in commands}
GROUP = "starpo.commands"
"""Entry-point group by which packages declare commands: a `typer.Typer`, or a function (docs/extend.md)."""
_OF_PACKAGES = "Of installed packages"
STYLE = {"rich_markup_mode": "rich", "pretty_exceptions_enable": False, "add_completion": False}
"""Typer options of every command."""


class Commands(TyperGroup):
    """Lazily loaded group of all commands. Click's types are Any here, as typer may bundle its own copy of click."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return [*_PANELS, *sorted(_of_packages())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stub of a command with its help text; None if there is no such command."""
        if package := _of_packages().get(cmd_name):
            return TyperCommand(cmd_name, help=f"Of {package}.", rich_help_panel=_OF_PACKAGES)
        if cmd_name not in _PANELS:
            if hint := replaced("command", cmd_name):
                ctx.fail(f"No such command '{cmd_name}'{hint}")
            return None
        return TyperCommand(cmd_name, help=_help(cmd_name), rich_help_panel=_PANELS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Resolve the command in use and load it."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and stub else stub, rest


@cache
def _outside() -> "Registry | None":
    """Return the commands of packages; None if there are none, so that help needs no more than their metadata."""
    if not metadata.entry_points(group=GROUP):
        return None
    from starpo.ragen.core.lookup import Registry

    return Registry(GROUP, {name: ":".join(_place(name)) for name in _PANELS})


def _of_packages() -> dict[str, str]:
    return outside.packages if (outside := _outside()) is not None else {}


def unusable() -> str:
    """Say which commands of packages are not offered, and why; empty if all are."""
    outside = _outside()
    return "" if outside is None else "\n\n".join((*outside.shadowed.values(), *outside.faults.values()))


def load(name: str) -> Any:
    """Import a command.

    Raises:
        RegistryError: If it is a package's, and cannot be imported, or is neither a `typer.Typer` nor a function.
        ConfigError: If two packages declare it.
    """
    if name in _of_packages():
        return _loaded_outside(name)
    place, attribute = _place(name)
    module = importlib.import_module(place)
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(**STYLE)  # type: ignore[arg-type]
        app.command(name)(getattr(module, attribute))
    return get_command(app)


def _loaded_outside(name: str) -> Any:
    from starpo.ragen.core.lookup import load as load_entry

    outside = _outside()
    assert outside is not None
    command = load_entry(outside, name)
    if not isinstance(command, typer.Typer):
        if not callable(command):
            raise RegistryError(
                f"command '{name}' of {outside.packages[name]} ({outside[name]}) is {type(command).__name__}; expected "
                "a typer.Typer or a function"
            )
        app = typer.Typer(**STYLE)  # type: ignore[arg-type]
        app.command(name)(command)
        return get_command(app)
    return get_command(command)


def _place(name: str) -> tuple[str, str]:
    """Return the module of a built-in command, and the name of its function there."""
    if name in _OF_ROOMS:
        module, _, attribute = _OF_ROOMS[name]["target"].partition(":")
        return module, attribute
    return f"{__package__}.{name}", name


def _help(name: str) -> str:
    """Return the first paragraph of the docstring of a command's function, or of a group's callback."""
    module, attribute = _place(name)
    spec = find_spec(module)
    assert spec, module
    tree = ast.parse(Path(str(spec.origin)).read_text(encoding="utf-8"))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == attribute)
    return (ast.get_docstring(function) or "").partition("\n\n")[0]
