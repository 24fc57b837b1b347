"""Shipped TOML files: presets, which `extend` each other, whole methods, grids of ablations and evaluation sweeps.

`names()` lists the presets that are complete runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starpo.ragen.config import StarPOConfig
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import load_config, read_fragment
from starpo.ragen.core.errors import ConfigError

FOLDER = Path(__file__).parent
FRAGMENTS = ("paper", "tiny", "objective", "starpo", "starpo-public-code", "starpo-s")
"""Presets that only others extend: settings of an algorithm or a scale, without an environment."""


@dataclass(frozen=True)
class Shipped:
    """The files of one folder, whose names stand for them wherever a user may name a file.

    Attributes:
        word: What they are, such as "a preset".
        folder: Where they are.
        advice: What a message about an unknown one ends with.
    """

    word: str
    folder: Path
    advice: str = ""

    def names(self) -> list[str]:
        """Those that can be asked for."""
        return sorted(path.stem for path in self.folder.glob("*.toml") if path.stem not in FRAGMENTS)

    def path(self, name_or_path: str) -> Path:
        """The file of this name, or the user's own at this path.

        Raises:
            ConfigError: If there is neither.
        """
        names = self.names()
        path = self.folder / f"{name_or_path}.toml" if name_or_path in names else Path(name_or_path)
        if not path.is_file():
            raise ConfigError(
                f"'{name_or_path}' is neither {self.word} nor a TOML file{near(name_or_path, names)}; "
                f"{self.word.split()[-1]}s: {', '.join(names)}{self.advice}"
            )
        return path

    def description(self, name: str) -> str:
        """What a file says about itself in its first line."""
        return self.path(name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


PRESETS = Shipped(
    "a preset",
    FOLDER,
    ". `ragen presets` describes them. --method NAME applies a method to one. The model is a setting: "
    "--set policy.type=pretrained --set policy.name_or_path=FOLDER_OR_NAME",
)
METHODS = Shipped("a method", FOLDER / "methods", ". `ragen presets --methods` describes them")
GRIDS = Shipped("a grid", FOLDER / "grids")
SWEEPS = Shipped("a sweep", FOLDER / "sweeps")
names = PRESETS.names


def served_grids() -> list[str]:
    """The grids that are deployments of their own: all but the papers' own, which need GPUs and days.

    Those are run by the deployment `ablation/custom`, as grids of a user's are.
    """
    return [name for name in GRIDS.names() if not name.endswith("-paper")]


def preset(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> StarPOConfig:
    """The configuration of a preset, or of a TOML file of the user's.

    Args:
        name_or_path: A name of `names()`, or the path of a TOML file (which may extend presets by name).
        overrides: Dotted path -> value.

    Raises:
        ConfigError: If there is no such preset or file, or the settings are wrong.
    """
    return load_config(PRESETS.path(name_or_path), search_path=FOLDER, overrides=overrides or {})


_SWITCHED_OFF = ("update.importance_cap", "update.effective_sample_reference")
"""Parts of an objective that are None where there are none, which TOML cannot say: a shipped method switches them off
unless it has them."""


def method(name_or_path: str) -> dict[str, Any]:
    """The settings that make a method, as overrides of any run's: dotted path -> value.

    Args:
        name_or_path: A name of `METHODS`, or the path of a TOML file of the user's with tables such as `[update]`.

    Raises:
        ConfigError: If there is no such method or file.
    """
    tables = read_fragment(METHODS.path(name_or_path), FOLDER)
    for table, values in tables.items():
        if not isinstance(values, dict):
            raise ConfigError(
                f"{name_or_path}: '{table}' is not a table of settings, such as [update]; a method has nothing else"
            )
    own = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    off = _SWITCHED_OFF if name_or_path in METHODS.names() else ()
    return own | {path: None for path in off if path not in own}
