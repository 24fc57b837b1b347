"""Presets: short TOML files that `extend` each other. `names()` lists those that are complete runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starpo.ragen.config import StarPOConfig
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import load_config
from starpo.ragen.core.errors import ConfigError

FOLDER = Path(__file__).parent
FRAGMENTS = ("paper", "tiny", "starpo", "starpo-public-code", "starpo-s")
"""Presets that only others extend: settings of an algorithm or a scale, without an environment."""


def names() -> list[str]:
    """Names of the presets that can be run."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem not in FRAGMENTS)


def preset(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> StarPOConfig:
    """The configuration of a preset, or of a TOML file of the user's.

    Args:
        name_or_path: A name of `names()`, or the path of a TOML file (which may extend presets by name).
        overrides: Dotted path -> value.

    Raises:
        ConfigError: If there is no such preset or file, or the settings are wrong.
    """
    path = FOLDER / f"{name_or_path}.toml" if name_or_path in names() else Path(name_or_path)
    if not path.is_file():
        raise ConfigError(
            f"'{name_or_path}' is neither a preset nor a TOML file{near(name_or_path, names())}; presets: "
            f"{', '.join(names())}. `ragen presets` describes them. A model is a setting of theirs: "
            "--set policy.type=pretrained --set policy.name_or_path=FOLDER_OR_NAME"
        )
    return load_config(path, search_path=FOLDER, overrides=overrides or {})
