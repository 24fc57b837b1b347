"""`StudySpec`: what a study asks for, read from a TOML file or put together from a command line."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError

from starpo.ragen.config.explanation import explain
from starpo.ragen.config.load import read_toml
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.settings import Settings


class StudySpec(Settings):
    """What a study asks for.

    Class attributes:
        word: What such a file holds, such as "a grid".
    """

    word: ClassVar[str]
    name: str
    """What its result is called; the file's name where the file gives none."""

    @classmethod
    def load(cls, path: Path, shipped: Path | None = None) -> Self:
        """Read a TOML file.

        Args:
            path: Of the file.
            shipped: A folder of others that it may build on.

        Raises:
            ConfigError: If the file is missing, is no TOML or holds something else.
        """
        return cls.make({"name": path.stem, **cls.read(path, shipped)}, str(path))

    @classmethod
    def read(cls, path: Path, shipped: Path | None = None) -> dict[str, Any]:
        """What a TOML file says.

        Raises:
            ConfigError: If the file is missing or is no TOML.
        """
        return read_toml(path, f"a TOML file with {cls.word}")

    @classmethod
    def make(cls, values: Mapping[str, Any], source: str) -> Self:
        """What these settings ask for.

        Args:
            values: By name.
            source: Where they are from, for messages.

        Raises:
            ConfigError: If one of them is unknown or wrong.
        """
        try:
            return cls.model_validate_json(json.dumps(cls.reshaped(values, source), default=str))
        except ValidationError as error:
            raise ConfigError(f"{source}: {explain(error, cls, {})}") from error

    @classmethod
    def reshaped(cls, values: Mapping[str, Any], source: str) -> Mapping[str, Any]:
        """The settings of a file as the model has them.

        Raises:
            ConfigError: If that cannot be.
        """
        del source
        return values


def repeated(values: Iterable[Any]) -> list[Any]:
    """Values that are there more than once, in order."""
    found = list(values)
    return sorted({value for value in found if found.count(value) > 1})
