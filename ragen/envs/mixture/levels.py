"""Levels: one environment at several values of its settings, as the parts of a mixture.

environment, fields, values -> tag -> the environment with these values: `size-3`, `size-4`, ...
"""

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, SerializeAsAny, ValidationError, model_validator

from starpo.ragen.core.settings import NamedModel
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import settings_type
from starpo.ragen.envs.mixture.environment import Mixture, MixturePart, MixtureSettings

_NOT_IN_A_TAG = re.compile(r"[^A-Za-z0-9_-]+")


class LevelsSettings(EnvironmentSettings):
    """An environment, and the values of its settings that make its levels."""

    type: Literal["levels"] = "levels"
    environment: Annotated[SerializeAsAny[EnvironmentSettings], NamedModel(settings_type)]
    """Settings of any environment except a mixture: its `type` and its own fields."""
    fields: list[str] = Field(min_length=1)
    """Settings of that environment that differ between levels, such as `["size"]`."""
    values: list[JsonValue] = Field(min_length=2)
    """A level each, from the easiest to the hardest: the value of all `fields`, such as `[3, 4, 5]`, or a list of one
    value per field, such as `[[1, 2], [3, 5]]` for `fields = ["min_solution", "max_solution"]`. A level's tag is the
    first field and the values: `size-3`, `min_solution-1-2`."""
    shares: list[float] | None = None
    """Share of each level, relative to one another: in the panel always, in rollouts without a curriculum. None: equal
    shares."""

    @model_validator(mode="after")
    def _levels_exist(self) -> "LevelsSettings":
        known = [name for name in type(self.environment).model_fields if name != "type"]
        for field in self.fields:
            if field not in known:
                near = get_close_matches(field, known, 1)
                raise ValueError(
                    f"fields names {quoted(field)}, which environment '{self.environment.type}' does not have"
                    f"{f'; did you mean {near[0]}?' if near else '.'} It has: {', '.join(known)}"
                )
        if self.shares is not None and len(self.shares) != len(self.values):
            raise ValueError(f"shares has {len(self.shares)} entries for {len(self.values)} values: give one for each")
        tags = [self._tag(value) for value in self.values]
        if len(set(tags)) < len(tags):
            raise ValueError(f"two levels have one tag, {', '.join(tags)}: give each level values of its own")
        assert self.mixture  # its own checks: of tags, shares and environments
        return self

    @cached_property
    def mixture(self) -> MixtureSettings:
        """The mixture that these settings stand for."""
        shares = self.shares or [1.0] * len(self.values)
        parts = {
            self._tag(value): MixturePart(share=share, environment=self._level(value))
            for value, share in zip(self.values, shares, strict=True)
        }
        return MixtureSettings(parts=parts)

    @property
    def parts(self) -> Mapping[str, MixturePart]:
        """Tag -> share and environment, from the easiest level to the hardest."""
        return self.mixture.parts

    def _each(self, value: JsonValue) -> list[JsonValue]:
        """Return the value of each field."""
        if not isinstance(value, list) or len(self.fields) == 1:
            return [value] * len(self.fields)
        if len(value) != len(self.fields):
            raise ValueError(
                f"values has {quoted(value)}: expected one value for all of {', '.join(self.fields)}, or a list of "
                f"{len(self.fields)}"
            )
        return value

    def _tag(self, value: JsonValue) -> str:
        values = self._each(value)
        shown = values if isinstance(value, list) else values[:1]
        return _NOT_IN_A_TAG.sub("_", "-".join(map(str, (self.fields[0], *shown))))

    def _level(self, value: JsonValue) -> EnvironmentSettings:
        settings = self.environment.model_dump(mode="json") | dict(zip(self.fields, self._each(value), strict=True))
        try:
            return type(self.environment).model_validate_json(json.dumps(settings))
        except ValidationError as error:
            reasons = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}".lstrip(": ") for e in error.errors())
            raise ValueError(f"level {self._tag(value)} is no '{self.environment.type}': {reasons}") from error

    def __hash__(self) -> int:
        return hash(self.mixture)

    def tagged(self) -> Mapping[str, EnvironmentSettings]:
        """Return the settings of the levels, by tag, from the easiest to the hardest."""
        return {tag: part.environment for tag, part in self.parts.items()}

    def tag_of(self, seed: int) -> str:
        """See `MixtureSettings.tag_of`."""
        return self.mixture.tag_of(seed)

    def assign_parts(self, number: int) -> list[str]:
        """See `MixtureSettings.assign_parts`."""
        return self.mixture.assign_parts(number)


class Levels(Mixture):
    """Mixture of the levels of one environment; of its settings, it reads what both kinds have."""

    settings_type: ClassVar[type[EnvironmentSettings]] = LevelsSettings  # type: ignore[assignment]
