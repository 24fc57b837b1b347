"""Grids that extend other grids: several figures of a paper are subsets of one experiment, so their files share its
settings.

extends = "fig-9-bandit"           # a grid in the same folder, or a shipped one; its name, figure and finding are not
                                   # inherited
only = ["vanilla", "mine"]         # cells to take, in this order; the first is the base. Default: all

[cells.mine]                       # added to the inherited cells

[overrides]                        # merged over the inherited overrides
iterations = 20

Runs are named after their grid, and cells with equal settings share every stage, so a subset costs no training.
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
"""Fields that a grid does not inherit from the one that it extends."""


def extended(
    path: Path,
    read: Callable[[Path], dict[str, Any]],
    shipped: Path | None = None,
    extending: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """Read a grid file together with the grids that it extends.

    Args:
        path: The file.
        read: Reads one file.
        shipped: Folder searched for grids that are not in the folder of the file.
        extending: Chain of files that extend this one.

    Raises:
        ConfigError: If a file cannot be read, if files extend each other in a cycle, or if `only` names an unknown
            cell.
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
    """Merge `own` over `base`: overrides are merged as settings, cells by name; all other fields are replaced."""
    together: dict[str, Any] = {}
    for part in ("cells", "overrides"):
        if isinstance(base.get(part), dict) and isinstance(own.get(part), dict):
            is_settings = part == "overrides"
            together[part] = merged(base[part], own[part], StarPOConfig) if is_settings else base[part] | own[part]
    return {**base, **own, **together}
