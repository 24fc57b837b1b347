"""`Change`: settings that change during training. A fork of a run is the same run with one more change."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from starpo.ragen.config.structure import merged, nested
from starpo.ragen.core.settings import Settings

CHANGEABLE = ("rollout", "reward", "filter", "update")
"""Tables whose settings may change: those that describe an iteration. All others define the run."""

_FIXED = {
    "rollout.staleness": "which policy plays which rollout",
    "update.learner": "what a checkpoint holds",
    "update.lora": "what a checkpoint holds",
}


def _changeable(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    for path in values:
        table, _, name = path.partition(".")
        if table not in CHANGEABLE or not name:
            raise ValueError(
                f"{path} cannot change during training; only settings of {', '.join(CHANGEABLE)} can, such as "
                "update.entropy_coefficient. To use another value, start a new run: `starpo train`"
            )
        fixed = next((fixed for fixed in _FIXED if path == fixed or path.startswith(f"{fixed}.")), None)
        if fixed:
            raise ValueError(f"{path} cannot change during training: it decides {_FIXED[fixed]}")
    return values


Changes = Annotated[dict[str, JsonValue], Field(min_length=1), AfterValidator(_changeable)]
"""Dotted path -> value, for settings that may change during training."""


class Change(Settings):
    """Settings that apply from an iteration on."""

    iteration: int = Field(ge=1, le=1_000_000)
    """Number of updates done before the first iteration with these settings: the checkpoint of this number is the last
    one trained without them."""
    set: Changes
    """Dotted path -> value, such as `{ "update.entropy_coefficient" = 0.01 }`: settings of `rollout`, `reward`,
    `filter` and `update`."""

    def applied(self, values: Mapping[str, Any], annotation: Any) -> dict[str, Any]:
        """Return `values`, nested tables of this annotation, with the change applied; `values` is not modified."""
        return merged(values, nested(self.set), annotation)


def changed_at(schedule: Sequence[Change], iteration: int, changes: Mapping[str, JsonValue]) -> list[dict[str, Any]]:
    """Return a schedule with `changes` from `iteration` on: earlier changes are kept, later ones are dropped."""
    kept = {change.iteration: change.set for change in schedule if change.iteration <= iteration}
    kept[iteration] = {**kept.get(iteration, {}), **changes}
    return [{"iteration": number, "set": values} for number, values in sorted(kept.items())]


def without(schedule: Sequence[Change], paths: Collection[str]) -> list[dict[str, Any]]:
    """Return a schedule without the settings at `paths` and everything below them; changes left empty are removed."""
    kept = ((change.iteration, _left(change.set, paths)) for change in schedule)
    return [{"iteration": iteration, "set": values} for iteration, values in kept if values]


def _left(values: Mapping[str, Any], paths: Collection[str], prefix: str = "") -> dict[str, Any]:
    left: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        if any(path == other or path.startswith(f"{other}.") for other in paths):
            continue
        if isinstance(value, Mapping) and any(other.startswith(f"{path}.") for other in paths):
            value = _left(value, paths, f"{path}.")
        left[name] = value
    return left
