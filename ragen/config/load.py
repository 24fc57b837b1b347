"""Configuration from TOML files that extend each other, and from overrides by dotted path.

layers: extended files, left to right -> the file itself -> overrides --merge--> StarPOConfig
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from starpo.ragen.config.explanation import explain, near
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import Table, merged, nested
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted


@dataclass(frozen=True)
class Layer:
    """Settings from one place.

    Attributes:
        source: Where they are from, for messages.
        values: The settings, as TOML nests them.
    """

    source: str
    values: Table


def load_config(path: Path, search_path: Path, overrides: Mapping[str, Any]) -> StarPOConfig:
    """Read a run's configuration.

    Args:
        path: A TOML file. Its top-level `extends = ["a", "b"]` names files to start from, merged left to right: each is
            `a.toml` of `search_path` or of its folder `methods` or, where there is none, a path relative to the file
            that names it.
        search_path: The folder of the presets.
        overrides: Dotted path -> value, such as `{"filter.keep": 0.5}`; a value may be a table.

    Raises:
        ConfigError: If a file is missing, is no TOML or extends itself, or if a setting is unknown or wrong.
    """
    return _validated([*_file_layers(path, search_path, ()), _override_layer(overrides)], str(path))


def read_fragment(path: Path, search_path: Path) -> Table:
    """The settings of a file that is no complete run, and of those that it extends, as TOML nests them.

    Args:
        path: As in `load_config`.
        search_path: As in `load_config`.

    Raises:
        ConfigError: If a file is missing, is no TOML or extends itself.
    """
    values: Table = {}
    for layer in _file_layers(path, search_path, ()):
        values = merged(values, layer.values, StarPOConfig)
    return values


def apply_overrides(
    config: StarPOConfig, overrides: Mapping[str, Any], name: str = "the configuration"
) -> StarPOConfig:
    """Change settings of a configuration, by dotted path.

    Args:
        config: What to start from.
        overrides: Dotted path -> value, as in `load_config`.
        name: What the result is called in messages.

    Raises:
        ConfigError: If a setting is unknown or wrong.
    """
    if not overrides:
        return config
    base = Layer("the configuration", config.model_dump(mode="json"))
    return _validated([base, _override_layer(overrides)], name)


def recorded_config(run: str, settings: Mapping[str, Any], advice: str) -> StarPOConfig:
    """The configuration of a stored run.

    Args:
        run: Its name, for the message.
        settings: As its record holds them, as JSON.
        advice: What to do where they are another release's, as a sentence without its full stop.

    Raises:
        ConfigError: If they are not settings of this release.
    """
    try:
        return StarPOConfig.model_validate_json(json.dumps(settings))
    except ValidationError as error:
        raise ConfigError(
            f"the settings of run '{run}' are not those of this release: {explain(error, StarPOConfig, {})}. {advice}"
        ) from error


def parse_override(text: str) -> tuple[str, Any]:
    """Read an override from a command line, such as `filter.keep=0.5`.

    The value is read as a TOML value (`0.5`, `true`, `"text"`, `[1, 2]`, `{ type = "bandit" }`), or as a JSON object
    (`{"type": "bandit"}`), or as `null`, which switches off what may be none; what is neither is text, so that
    `filter.strategy=top_k` needs no quotes.

    Returns:
        Dotted path, value.

    Raises:
        ConfigError: If there is no `=` or no path before it.
    """
    path, equals, value = text.partition("=")
    path, value = path.strip(), value.strip()
    if not equals or not all(path.split(".")):
        raise ConfigError(f"override {quoted(text)}: expected PATH=VALUE, such as filter.keep=0.5")
    if value == "null":
        return path, None
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return path, _json_object(value)
    return path, parsed["value"] if set(parsed) == {"value"} else value


def _json_object(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _validated(layers: Sequence[Layer], name: str) -> StarPOConfig:
    values: Table = {}
    for layer in layers:
        values = merged(values, layer.values, StarPOConfig)
    try:
        # Through JSON, whose strict mode reads lists as tuples: TOML has no tuples either.
        return StarPOConfig.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        sources = {path: layer.source for layer in layers for path in _leaves(layer.values)}
        raise ConfigError(f"{name}: {explain(error, StarPOConfig, sources)}") from error


def _file_layers(path: Path, search_path: Path, chain: tuple[Path, ...]) -> list[Layer]:
    """The layers of a file, those it extends first; `chain` are the files that led here."""
    resolved = path.resolve()
    if resolved in chain:
        names = " -> ".join(file.name for file in (*chain[chain.index(resolved) :], resolved))
        raise ConfigError(f"{path}: extends itself: {names}; remove one of these from an `extends`")
    values = read_toml(path)
    extends = values.pop("extends", [])
    if not isinstance(extends, list) or not all(isinstance(name, str) for name in extends):
        raise ConfigError(
            f'{path}: extends = {quoted(extends)}: expected a list of names or paths, such as ["sokoban"]'
        )
    layers = []
    for name in extends:
        layers += _file_layers(_extended(name, path, search_path), search_path, (*chain, resolved))
    return [*layers, Layer(path.name, values)]


def _extended(name: str, path: Path, search_path: Path) -> Path:
    folders = (search_path, search_path / "methods")
    candidates = (*(folder / f"{name}.toml" for folder in folders), path.parent / name)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    names = sorted(file.stem for folder in folders for file in folder.glob("*.toml"))
    raise ConfigError(
        f"{path}: extends '{name}', which is neither a preset nor a file ({' or '.join(map(str, candidates))})"
        f"{near(name, names)}; presets: {', '.join(names) or 'none'}"
    )


def read_toml(path: Path, expected: str = "a TOML file") -> Table:
    """What a TOML file says; `expected` is what it should be, for messages.

    Raises:
        ConfigError: If it is missing or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected {expected}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _override_layer(overrides: Mapping[str, Any]) -> Layer:
    return Layer("override", nested(overrides))


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted paths of everything in nested tables, tables included."""
    paths = []
    for key, value in values.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += _leaves(value, f"{prefix}{key}.")
    return paths
