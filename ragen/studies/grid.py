"""`Grid`: specification of an ablation, as a TOML file.

preset = "bandit"                  # or: run = "the name of a stored run"
seeds = [0, 1, 2]

[axes]                             # the first value of every axis defines the base cell
filter.keep = [0.5, 0.25, 1.0]
online_k = [1, 5]

[overrides]                        # for every cell
iterations = 20

Instead of axes, cells that differ in several settings can be named; the first is the base:

[cells.vanilla]
[cells.filtered]
filter.strategy = "top_fraction"
filter.keep = 0.25

A method's preset can be a cell by itself: `methods = ["gspo", "trico"]`, in addition to the named cells.

Several figures of a paper are subsets of one experiment, so a grid can extend another:

extends = "fig-9-bandit"           # a grid in the same folder, or a shipped one; its name, figure and finding are not
                                   # inherited
only = ["vanilla", "mine"]         # cells to take, in this order; the first is the base. Default: all

[cells.mine]                       # added to the inherited cells

[overrides]                        # merged over the inherited overrides
iterations = 20

Runs are named after their grid, and cells with equal settings share every stage, so a subset costs no training.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue

from starpo.ragen.config.explanation import near
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import flattened, merged
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.studies.finding import PaperFinding
from starpo.ragen.studies.spec import StudySpec, repeated

MIN_SEEDS = 3
"""With fewer, differences between seeds cannot be told apart from differences between cells."""
_ITS_OWN = ("name", "finding", "figure")
"""Fields that a grid does not inherit from the one that it extends."""


class Grid(StudySpec):
    """An ablation: every combination of the axes' values, with every seed."""

    word = "a grid"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$")
    """Name of the ablation and prefix of its runs; default: the name of the file."""
    preset: str | None = None
    """The preset, or TOML file of settings, that cells start from; either this or `run`."""
    run: str | None = None
    """The stored run whose settings cells start from; its seed is replaced."""
    axes: dict[str, list[JsonValue]] = Field(default_factory=dict)
    """Dotted path of a setting -> its values. The cell of all first values is the base of comparison."""
    cells: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    """Instead of axes: name of a cell -> its settings, by dotted path. The first is the base."""
    methods: list[str] = Field(default_factory=list)
    """Method presets that are cells by themselves, after the named cells (`starpo presets --methods`)."""
    seeds: list[int] = Field(min_length=1)
    """Seeds of the runs of every cell; at least three unless fewer are explicitly allowed."""
    overrides: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of all cells, by dotted path."""
    finding: PaperFinding | None = None
    """What a paper reports about these cells."""
    figure: Literal["success", "league"] = "success"
    """What is tabulated and drawn in addition to success. 'success': nothing. 'league': every cell's difference from
    the base, at equal trajectories and at equal time."""

    @classmethod
    def read(cls, path: Path, shipped: Path | None = None) -> dict[str, Any]:
        """Read a file and the grids that it extends.

        Raises:
            ConfigError: If one of them is missing or is not valid TOML, if they extend each other in a cycle, or if
                `only` names an unknown cell.
        """
        return _extended(path, super().read, shipped)

    @classmethod
    def reshaped(cls, values: Mapping[str, Any], source: str) -> Mapping[str, Any]:
        """Flatten nested tables of axes and cells into dotted paths."""
        cells, axes = values.get("cells"), values.get("axes")
        if isinstance(cells, dict) and all(isinstance(cell, dict) for cell in cells.values()):
            values = {**values, "cells": {name: flattened(cell) for name, cell in cells.items()}}
        if not isinstance(axes, dict):
            return values
        axes = flattened(axes)
        scalars = [f"axes.{axis} = {quoted(value)}" for axis, value in axes.items() if not isinstance(value, list)]
        if scalars:
            raise ConfigError(f"{source}: {scalars[0]}: expected a list of values, such as [0.25, 0.5]")
        return {**values, "axes": axes}


def check_grid(grid: Grid, source: str, *, allow_few_seeds: bool = False) -> None:
    """Check what the model's types cannot express.

    Args:
        grid: The grid.
        source: Where it comes from, for messages.
        allow_few_seeds: Whether fewer than three seeds are allowed.

    Raises:
        ConfigError: If it does not have exactly one base, has an axis without or with repeated values, seeds that are
            negative, repeated or too few, or if it sets `seed` itself.
    """

    def refuse(what: str) -> None:
        raise ConfigError(f"{source}: {what}")

    if (grid.preset is None) == (grid.run is None):
        refuse("expected either `preset` or `run`, the settings that the cells start from, and not both")
    if bool(grid.axes) == bool(grid.cells):
        refuse("expected either `axes`, whose values are multiplied out, or `cells`, which have names, and not both")
    if grid.methods and not grid.cells:
        refuse("`methods` are compared with the first of `cells`: name it, as in [cells.default]")
    if twice := repeated([*grid.cells, *grid.methods]):
        refuse(f"the cell '{twice[0]}' appears twice, in `methods` or in `cells` and `methods`")
    if any("seed" in cell for cell in grid.cells.values()):
        refuse("`seed` cannot be a setting of a cell: every cell is run with all of `seeds`")
    if "seed" in grid.axes or "seed" in grid.overrides:
        refuse("`seed` can be neither an axis nor an override: every cell is run with all of `seeds`")
    twice = repeated(grid.seeds)
    if twice or min(grid.seeds) < 0:
        which = f"; repeated: {', '.join(map(str, twice))}" if twice else ""
        refuse(f"seeds = {grid.seeds}: expected different numbers, 0 or more{which}")
    if len(grid.seeds) < MIN_SEEDS and not allow_few_seeds:
        refuse(
            f"seeds = {grid.seeds}: expected at least {MIN_SEEDS}, because fewer cannot tell a better setting from a "
            "luckier seed; --allow-few-seeds runs it anyway"
        )
    for axis, values in grid.axes.items():
        if not values:
            refuse(f"axes.{axis} is empty: expected at least one value")
        if any(_same(value, other) for at, value in enumerate(values) for other in values[:at]):
            refuse(f"axes.{axis} = {values}: a value appears twice")
        if axis in flattened(grid.overrides):
            refuse(f"'{axis}' is both an axis and an override; take it out of one of them")


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal, without treating True as equal to 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _extended(
    path: Path, read: Callable[[Path], dict[str, Any]], shipped: Path | None, extending: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Read a grid file together with the grids that it extends, with `read` for one file.

    Grids that are not in the folder of the file are searched in `shipped`; `extending` is the chain of files that
    extend this one.
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
        inherited = _extended(base, read, shipped, (*extending, path))
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


def _merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `overlay` over `base`: overrides are merged as settings, cells by name; all other fields are replaced."""
    together: dict[str, Any] = {}
    for part in ("cells", "overrides"):
        if isinstance(base.get(part), dict) and isinstance(overlay.get(part), dict):
            is_settings = part == "overrides"
            together[part] = (
                merged(base[part], overlay[part], StarPOConfig) if is_settings else base[part] | overlay[part]
            )
    return {**base, **overlay, **together}
