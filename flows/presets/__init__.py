"""TOML files by name: presets, which `extend` each other, methods and grids of ablations; of rooms and packages too.

`names()` lists the presets that define complete runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import load_config, read_fragment
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import installed_folders
from starpo.ragen.core.rooms import declared_folders

FOLDER = Path(__file__).parent
FRAGMENTS = (
    "paper", "pretrained", "brief", "gpu", "tiny", "objective", "distillation", "starpo", "starpo-public-code",
    "starpo-s",
)  # fmt: skip
"""Presets for `extends` alone: settings of an algorithm, a prompt or a scale, without an environment."""


@dataclass(frozen=True)
class Shipped:
    """The files of one folder, and of installed packages, which users may refer to by name instead of by path.

    Attributes:
        word: Word for one of them, such as "a preset".
        folder: The folder of files that belong to no room; None if all belong to rooms.
        advice: Advice at the end of the error message about an unknown name.
        kind: By it, rooms declare folders of such files (`ragen.core.rooms`), and packages as entry points of the group
            `starpo.<kind>` (docs/extend.md); '' if neither can.
    """

    word: str
    folder: Path | None
    advice: str = ""
    kind: str = ""

    @cached_property
    def _catalogue(self) -> "tuple[dict[str, Path], dict[str, str], list[str]]":
        """Name -> file; name -> the package that declares it; what cannot be used, a sentence each."""
        built_in = [*filter(None, [self.folder]), *(declared_folders(self.kind) if self.kind else ())]
        files = {path.stem: path for folder in built_in for path in folder.glob("*.toml")}
        packages: dict[str, str] = {}
        folders, faults = installed_folders(f"starpo.{self.kind}") if self.kind else ({}, [])
        for package, folder in folders.items():
            for path in sorted(folder.glob("*.toml")):
                if path.stem in files:
                    owner = packages.get(path.stem)
                    taken = f"is one of {owner}" if owner else "is a built-in name"
                    faults.append(f"{package}: {path.stem}.toml is not used, since '{path.stem}' {taken}: rename it")
                else:
                    files[path.stem], packages[path.stem] = path, package
        return files, packages, faults

    @property
    def packages(self) -> dict[str, str]:
        """Name -> the package that declares it, of names that are not built in."""
        return self._catalogue[1]

    @property
    def faults(self) -> list[str]:
        """What packages declare that cannot be used, a sentence each."""
        return self._catalogue[2]

    @property
    def folders(self) -> list[Path]:
        """The folders of all files, the built-in ones first."""
        return list(dict.fromkeys(path.parent for path in self._catalogue[0].values()))

    def names(self) -> list[str]:
        """Return the names of the files, without fragments."""
        return sorted(name for name in self._catalogue[0] if name not in FRAGMENTS)

    def path(self, name_or_path: str) -> Path:
        """Return the path of the file with this name, or of the user's file at this path.

        Raises:
            ConfigError: If neither exists.
        """
        names = self.names()
        path = self._catalogue[0][name_or_path] if name_or_path in names else Path(name_or_path)
        if not path.is_file():
            if name_or_path in FRAGMENTS:
                raise ConfigError(
                    f"'{name_or_path}' only extends presets, and is not {self.word} itself: write a TOML file with "
                    f'extends = ["sokoban", "{name_or_path}"]'
                )
            if path.suffix == ".toml":
                hint = near(path.stem, names)
                raise ConfigError(f"{path}: no such file; expected {self.word} by name or a TOML file{hint}")
            from starpo.ragen.core.gone import replaced

            hint = replaced(self.word.split()[-1], name_or_path) or near(name_or_path, names)
            raise ConfigError(
                f"'{name_or_path}' is neither {self.word} nor a TOML file{hint}; "
                f"{self.word.split()[-1]}s: {', '.join(names)}{self.advice}"
            )
        return path

    def description(self, name: str) -> str:
        """Return the description in the file's first line."""
        text = self._catalogue[0][name].read_text(encoding="utf-8")
        return text.partition("\n")[0].removeprefix("#").strip()


PRESETS = Shipped(
    "a preset",
    FOLDER,
    ". `starpo presets` describes them. --method NAME applies a method to one. The model is a setting: "
    "--set policy.type=pretrained --set policy.name_or_path=FOLDER_OR_NAME",
    "presets",
)
METHODS = Shipped("a method", FOLDER / "methods", ". `starpo presets --methods` describes them")
GRIDS = Shipped("a grid", None, kind="grids")
names = PRESETS.names


def preset(name_or_path: str, overrides: Mapping[str, Any] | None = None) -> StarPOConfig:
    """Load the configuration of a preset, or of a user's TOML file.

    Args:
        name_or_path: A name of `names()`, or the path of a TOML file (which may extend presets by name).
        overrides: Dotted path -> value.

    Raises:
        ConfigError: If there is no such preset or file, or the settings are invalid.
    """
    return load_config(PRESETS.path(name_or_path), search_path=PRESETS.folders, overrides=overrides or {})


_SWITCHED_OFF = tuple(
    f"update.{name}" for name in ("importance_cap", "importance_floor", "negative_max_kl", "effective_sample_reference")
)
"""Parts of an objective that None disables. TOML has no null, so a shipped method disables them unless it sets them."""


def method(name_or_path: str) -> dict[str, Any]:
    """Return the settings of a method, as overrides for any run: dotted path -> value.

    Args:
        name_or_path: A name of `METHODS`, or the path of a user's TOML file with tables such as `[update]`.

    Raises:
        ConfigError: If there is no such method or file, or the file contains anything but tables.
    """
    tables = read_fragment(METHODS.path(name_or_path), PRESETS.folders)
    for table, values in tables.items():
        if not isinstance(values, dict):
            raise ConfigError(
                f"{name_or_path}: '{table}' is not a table of settings, such as [update]; a method contains only those"
            )
    overrides = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    off = _SWITCHED_OFF if name_or_path in METHODS.names() else ()
    return overrides | {path: None for path in off if path not in overrides}
