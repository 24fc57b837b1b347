"""`StudySpec`: specification of a study, read from a TOML file or built from the command line."""

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
    """Specification of a study.

    Class attributes:
        word: What such a file contains, for messages, such as "a grid".
    """

    word: ClassVar[str]
    name: str
    """Name of its result; default: the name of the file."""

    @classmethod
    def load(cls, path: Path, shipped: Path | None = None) -> Self:
        """Load and validate a TOML file.

        Args:
            path: Path of the file.
            shipped: Folder of other files that it may extend.

        Raises:
            ConfigError: If the file is missing, is not valid TOML or has invalid contents.
        """
        return cls.make({"name": path.stem, **cls.read(path, shipped)}, str(path))

    @classmethod
    def read(cls, path: Path, shipped: Path | None = None) -> dict[str, Any]:
        """Read the values of a TOML file.

        Raises:
            ConfigError: If the file is missing or is not valid TOML.
        """
        return read_toml(path, f"a TOML file with {cls.word}")

    @classmethod
    def make(cls, values: Mapping[str, Any], source: str) -> Self:
        """Build a specification from values.

        Args:
            values: Values by name.
            source: Where they come from, for messages.

        Raises:
            ConfigError: If one of them is unknown or invalid.
        """
        try:
            return cls.model_validate_json(json.dumps(cls.reshaped(values, source), default=str))
        except ValidationError as error:
            raise ConfigError(f"{source}: {explain(error, cls, {})}") from error

    @classmethod
    def reshaped(cls, values: Mapping[str, Any], source: str) -> Mapping[str, Any]:
        """Convert the layout of a file into that of the model.

        Raises:
            ConfigError: If the values cannot be converted.
        """
        del source
        return values


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return the values that occur more than once, sorted."""
    entries = list(values)
    return sorted({value for value in entries if entries.count(value) > 1})
