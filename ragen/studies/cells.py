"""Cells of a grid: the product of the axes, and the configuration of each, checked before anything runs.

Grid, base configuration --expand--> [Cell] --configuration(seed)--> StarPOConfig
"""

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from starpo.ragen.agents.evaluation.panel import panel_of
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import apply_overrides, layered
from starpo.ragen.config.schedule import without
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import alternatives, flattened, nested, setting
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.grid import Grid

_MAX_SLUG = 48


@dataclass(frozen=True)
class Cell:
    """One combination of the axes' values.

    Attributes:
        label: Display name, such as "keep=0.5 online_k=1".
        values: Axis -> value; for a named cell, its settings.
        config: Complete settings; the seed in them is a placeholder.
        is_base: Whether it is the cell that the others are compared with.
    """

    label: str
    values: dict[str, JsonValue]
    config: StarPOConfig
    is_base: bool

    @property
    def slug(self) -> str:
        """Label in a form suitable for a run's name: letters, digits, '.', '_' and '-'."""
        return re.sub(r"[^A-Za-z0-9._]+", "-", self.label).strip("-")[:_MAX_SLUG]

    def configuration(self, seed: int) -> StarPOConfig:
        """Return the cell's settings with this seed."""
        return self.config.model_copy(update={"seed": seed})


def expand(
    grid: Grid, base: StarPOConfig, source: str, methods: Mapping[str, dict[str, JsonValue]] | None = None
) -> list[Cell]:
    """Expand a grid into its cells, the last axis varying fastest; the base cell comes first.

    Args:
        grid: A checked grid.
        base: The settings of its preset or run.
        source: Where the grid comes from, for messages.
        methods: Name of each of the grid's methods -> its settings, by dotted path.

    Raises:
        ConfigError: If an axis or an override is not a setting, if a cell's settings are invalid or contradictory (the
            message names the cell), if two cells are identical, or if cells are evaluated on different panels.
    """
    named = {f"cells.{name}": cell for name, cell in grid.cells.items()}
    checked: dict[str, Iterable[str]] = {"axes": grid.axes, "overrides": grid.overrides, **named}
    for part, paths in checked.items():
        for path in paths:
            _check_path(path, f"{source}: {part}.{path}")
    cells = [
        Cell(label, values, _configured(base, _over(grid.overrides, values), f"{source}, cell {label}"), not at)
        for at, (label, values) in enumerate({**(grid.cells or _multiplied(grid)), **(methods or {})}.items())
    ]
    _check_distinct(cells, source)
    _check_same_panel(cells, source)
    _check_finding(grid, [cell.label for cell in cells], source)
    return cells


def _over(overrides: Mapping[str, JsonValue], values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Merge a cell's values over the grid's overrides, by dotted path; either may contain whole tables."""
    return flattened(layered(nested(overrides), nested(values)))


def _configured(base: StarPOConfig, values: Mapping[str, JsonValue], name: str) -> StarPOConfig:
    """Apply settings to the base in every iteration: schedule entries that would change them are removed."""
    kept = {} if "schedule" in values else {"schedule": without(base.schedule, values)}
    return apply_overrides(base, {**values, **kept}, name=name)


def _multiplied(grid: Grid) -> dict[str, dict[str, JsonValue]]:
    """Return label -> values of the axes, for every combination."""
    labels = _short_names(list(grid.axes))
    combinations = (
        dict(zip(grid.axes, combination, strict=True)) for combination in itertools.product(*grid.axes.values())
    )
    return {
        " ".join(f"{labels[axis]}={_text(value)}" for axis, value in values.items()): values for values in combinations
    }


def _check_finding(grid: Grid, labels: list[str], source: str) -> None:
    """Check that a finding refers only to cells of the grid, and expects no difference of the base from itself."""
    if grid.finding is None:
        return
    order = grid.finding.order
    if order and (len(order) < 3 or len(set(order)) < len(order)):
        raise ConfigError(
            f"{source}: finding.order = {order}: expected at least three different cells; of two, say in "
            "finding.expected which is higher"
        )
    for part, known in (("numbers", labels), ("expected", labels[1:]), ("order", labels)):
        for label in getattr(grid.finding, part):
            if label not in known:
                raise ConfigError(
                    f"{source}: finding.{part}: there is no cell '{label}'{near(label, known)}; cells: "
                    f"{', '.join(known)}"
                )


def _check_path(path: str, place: str) -> None:
    """Check that a dotted path leads to a setting, by following it through the models."""
    annotation: object = StarPOConfig
    for part in path.split("."):
        child = setting(annotation, part)
        if child is None:
            names = sorted({name for model in alternatives(annotation).values() for name in model().model_fields})
            known = f"{near(part, names)}; known here: {', '.join(names)}" if names else ""
            raise ConfigError(f"{place}: there is no setting '{part}'{known}")
        annotation = child


def _check_distinct(cells: list[Cell], source: str) -> None:
    labels: dict[str, str] = {}
    for cell in cells:
        first = labels.setdefault(cell.config.model_dump_json(), cell.label)
        if first != cell.label:
            raise ConfigError(f"{source}: the cells {first} and {cell.label} have the same settings; leave one out")


def _check_same_panel(cells: list[Cell], source: str) -> None:
    """Check that all cells are evaluated on the same prompts, since differences are paired by prompt."""
    panels = {}
    for cell in cells:
        panels[cell.label] = panel_of(cell.config.environment, cell.config.evaluation).digest
    base = cells[0].label
    for label, digest in panels.items():
        if digest != panels[base]:
            raise ConfigError(
                f"{source}: the cells {base} and {label} are evaluated on different panels, so they cannot be compared "
                "prompt by prompt; keep environment and panel the same in all cells, and make one grid per panel"
            )


def _short_names(axes: list[str]) -> dict[str, str]:
    """Return axis -> the shortest suffix of its path that no other axis shares."""
    short = {}
    for axis in axes:
        parts = axis.split(".")
        ends = [".".join(parts[-length:]) for length in range(1, len(parts) + 1)]
        unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in axes) == 1)
        short[axis] = next(unique, axis)
    return short


def _text(value: JsonValue) -> str:
    """Format a value as in TOML, except strings without quotes and tables by their contents."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ",".join(f"{key}:{_text(inner)}" for key, inner in value.items())
    return json.dumps(value)
