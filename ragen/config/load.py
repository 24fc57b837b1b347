"""Configuration from TOML files that extend each other, and from overrides by dotted path.

layers: extended files, left to right -> the file itself -> overrides --merge--> StarPOConfig
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from starpo.ragen.config.explanation import explain, near
from starpo.ragen.config.precision import fill_in, without_dtypes
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import Table, merged, nested
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.redaction import hidden_if_secret
from starpo.ragen.core.visible import quoted


@dataclass(frozen=True)
class Layer:
    """Settings from one source.

    Attributes:
        source: Name of the source, for messages.
        values: The settings, nested as in TOML.
    """

    source: str
    values: Table


def load_config(
    path: Path, search_path: Sequence[Path], overrides: Mapping[str, Any], name: str | None = None
) -> StarPOConfig:
    """Load the configuration of a run.

    Args:
        path: A TOML file. Its top-level `extends = ["a", "b"]` names files to start from, merged left to right: each is
            `a.toml` in a folder of `search_path` or in its subfolder `methods`; failing that, a path relative to the
            file that names it.
        search_path: Folders of presets.
        overrides: Dotted path -> value, such as `{"filter.keep": 0.5}`; a value may be a table.
        name: Name of the result, for messages. None for that of the file.

    Raises:
        ConfigError: If a file is missing, is not TOML or extends itself, or if a setting is unknown or invalid.
    """
    layers = [*_file_layers(path, search_path, ()), _override_layer(overrides)]
    return _validated(layers, name or (path.stem if path.parent in search_path else str(path)))


def read_fragment(path: Path, search_path: Sequence[Path]) -> Table:
    """Return the settings of a file that is not a complete run, and of the files it extends, nested as in TOML.

    Args:
        path: As in `load_config`.
        search_path: As in `load_config`.

    Raises:
        ConfigError: If a file is missing, is not TOML or extends itself.
    """
    values: Table = {}
    for layer in _file_layers(path, search_path, ()):
        values = layered(values, layer.values)
    return values


def layered(base: Table, extra: Table) -> Table:
    """Return the settings of a layer, nested as in TOML, on top of those below it: deep, as in `structure`; a layer
    with a `precision` decides all dtypes that this stands for, also those below it."""
    return merged(without_dtypes(base) if "precision" in extra else base, extra, StarPOConfig)


def apply_overrides(
    config: StarPOConfig, overrides: Mapping[str, Any], name: str = "the configuration"
) -> StarPOConfig:
    """Override settings of a configuration by dotted path.

    Args:
        config: The configuration to change.
        overrides: Dotted path -> value, as in `load_config`.
        name: Name of the result, for messages.

    Raises:
        ConfigError: If a setting is unknown or invalid.
    """
    if not overrides:
        return config
    base = Layer("the configuration", config.model_dump(mode="json"))
    return _validated([base, _override_layer(overrides)], name)


def recorded_config(run: str, settings: Mapping[str, Any], advice: str) -> StarPOConfig:
    """Return the configuration of a stored run.

    Args:
        run: Name of the run, for the message.
        settings: Settings from the run's record, as JSON.
        advice: What to do if they are from another release, as a sentence without its full stop.

    Raises:
        ConfigError: If they are not valid settings of this release.
    """
    try:
        return StarPOConfig.model_validate_json(json.dumps(settings))
    except ValidationError as error:
        raise ConfigError(
            f"the settings of run '{run}' are not valid in this release: {explain(error, StarPOConfig, {})}. {advice}"
        ) from error


def parse_override(text: str) -> tuple[str, Any]:
    """Parse an override from a command line, such as `filter.keep=0.5`.

    The value is parsed as a TOML value (`0.5`, `true`, `"text"`, `[1, 2]`, `{ type = "bandit" }`), as a JSON object
    (`{"type": "bandit"}`), or as `null`, which unsets an optional setting. Anything else is text, so that
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


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse the overrides of a command line, as `parse_override` does.

    Raises:
        ConfigError: Also if two of them set the same path.
    """
    values: dict[str, Any] = {}
    for path, value in map(parse_override, texts):
        if path in values:
            both = " and to ".join(hidden_if_secret(path, quoted(each)) for each in (values[path], value))
            raise ConfigError(f"override {path}: set twice, to {both}; expected one value")
        values[path] = value
    return values


def _json_object(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _validated(layers: Sequence[Layer], name: str) -> StarPOConfig:
    values: Table = {}
    for layer in layers:
        values = layered(values, layer.values)
    try:
        # Through JSON, whose strict mode accepts lists for tuples: TOML has no tuples either.
        return StarPOConfig.model_validate_json(json.dumps(fill_in(values), default=str))
    except ValidationError as error:
        sources = {path: layer.source for layer in layers for path in _leaves(layer.values)}
        raise ConfigError(f"{name}: {explain(error, StarPOConfig, sources)}") from error


def _file_layers(path: Path, search_path: Sequence[Path], chain: tuple[Path, ...]) -> list[Layer]:
    """Return the layers of a file, extended files first; `chain` contains the files that led here."""
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


def _extended(name: str, path: Path, search_path: Sequence[Path]) -> Path:
    folders = [folder for root in search_path for folder in (root, root / "methods")]
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
    """Read a TOML file; `expected` describes what it should be, for messages.

    Raises:
        ConfigError: If it is missing or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows begin files with a mark
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected {expected}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _override_layer(overrides: Mapping[str, Any]) -> Layer:
    return Layer("override", nested(overrides))


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the dotted paths of everything in nested tables, including the tables."""
    paths = []
    for key, value in values.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, Mapping):
            paths += _leaves(value, f"{prefix}{key}.")
    return paths
