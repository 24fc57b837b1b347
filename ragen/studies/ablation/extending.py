"""Grids made of other grids: several figures of a paper are cuts of one experiment, so their files share its settings.

extends = "fig-9-bandit"           # a grid beside this file, or a shipped one; not its name, figure and finding
only = ["vanilla", "mine"]         # cells to take, in this order; the first is the base. None: all

[cells.mine]                       # beside those that are there

[overrides]                        # over those that are there
iterations = 20

Runs are named after their grid, and cells of equal settings share every stage, so a cut costs no training.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starpo.ragen.config.explanation import near
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import merged
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted

_ITS_OWN = ("name", "finding", "figure")
"""What a grid does not take from the one that it extends."""


def extended(
    path: Path,
    read: Callable[[Path], dict[str, Any]],
    shipped: Path | None = None,
    extending: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """What a grid's file says, with what it extends.

    Args:
        path: The file.
        read: Reads one file.
        shipped: Where grids are looked for that are not beside it.
        extending: Files that have led here.

    Raises:
        ConfigError: If a file cannot be read, if they extend each other, or `only` names a cell that is not there.
    """
    values = read(path)
    name = values.pop("extends", None)
    if name is not None:
        folders = [path.parent, *([shipped] if shipped else [])]
        candidates = [folder / f"{name}.toml" for folder in folders]
        base = next((file for file in candidates if file.is_file() and file != path), candidates[0])
        if base in (*extending, path):
            raise ConfigError(f"{path}: extends = {quoted(name)}: these grids extend each other")
        if not base.is_file():
            names = sorted({file.stem for folder in folders for file in folder.glob("*.toml") if file != path})
            raise ConfigError(
                f"{path}: extends = {quoted(name)}: there is no such grid in {path.parent}{near(str(name), names)}"
            )
        inherited = extended(base, read, shipped, (*extending, path))
        values = _merged({part: value for part, value in inherited.items() if part not in _ITS_OWN}, values)
    only, cells = values.pop("only", None), values.get("cells")
    if only is None:
        return values
    if not isinstance(only, list) or not isinstance(cells, dict):
        raise ConfigError(
            f"{path}: only = {quoted(only)}: expected a list of names of `cells`, in a grid that has them"
        )
    if unknown := [str(cell) for cell in only if cell not in cells]:
        raise ConfigError(
            f"{path}: only: there is no cell '{unknown[0]}'{near(unknown[0], cells)}; cells: {', '.join(cells)}"
        )
    return {**values, "cells": {cell: cells[cell] for cell in only}}


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `base`: overrides as settings extend settings, cells by name, all else as a whole."""
    together: dict[str, Any] = {}
    for part in ("cells", "overrides"):
        if isinstance(base.get(part), dict) and isinstance(own.get(part), dict):
            is_settings = part == "overrides"
            together[part] = merged(base[part], own[part], StarPOConfig) if is_settings else base[part] | own[part]
    return {**base, **own, **together}
