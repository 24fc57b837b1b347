"""The cache key of a stage's work: equal stage, version, settings, inputs, seed and code give equal keys in any
process.

(stage, settings, inputs, seed, code) -> canonical_json -> stage_key -> <store>/<kind>/<key>/
"""

import hashlib
import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel

from starpo.schemas.manifest import Stage

KEY_DIGITS = 32
"""Hexadecimal digits of a key: 128 bits."""
_NAME_DIGITS = 8


def stage_key(
    stage: Stage,
    settings: Mapping[str, Any],
    inputs: Mapping[str, str],
    seed: int | None,
    code: Mapping[str, str] | None = None,
) -> str:
    """Return the key of the artifacts that a stage makes.

    Args:
        stage: Its name and version.
        settings: The stage's own configuration, without anything that cannot affect its result.
        inputs: Role -> key of every artifact it reads.
        seed: Its seed, if it has one.
        code: Role -> identity of the code that the settings name (`ragen.core.identity.code_identity`).

    Returns:
        32 hexadecimal digits. The order of settings and inputs does not matter; any change does.

    Raises:
        TypeError: If something has no JSON form.
    """
    work = {"stage": stage, "settings": settings, "inputs": dict(inputs), "seed": seed}
    if code:
        work["code"] = dict(code)
    return hashlib.sha256(canonical_json(work).encode()).hexdigest()[:KEY_DIGITS]


def name_digits(value: Any) -> str:
    """Return eight hexadecimal digits of a value's digest, which distinguish names of runs."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:_NAME_DIGITS]


def canonical_json(value: Any) -> str:
    """Serialise to JSON with sorted keys, no spaces and one form for equal values: tuples become lists, enums their
    values, -0.0 becomes 0.0.

    An int and a float of the same value stay distinct (`1`, `1.0`): settings are typed, so a setting is always one or
    the other.

    Raises:
        TypeError: If something has no JSON form: a set, an object, NaN, a key that is not a string.
    """
    return json.dumps(as_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def as_json(value: Any) -> Any:
    """Convert a value to JSON's own types: dict, list, str, int, float, bool, None.

    Raises:
        TypeError: As `canonical_json`.
    """
    match value:
        case BaseModel():
            return as_json(value.model_dump())
        case Enum():
            return as_json(value.value)
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            if not math.isfinite(value):
                raise TypeError(f"{value} has no JSON form")
            return float(value) + 0.0
        case list() | tuple():
            return [as_json(item) for item in value]
        case Mapping():
            return {_text(key): as_json(item) for key, item in value.items()}
        case _:
            raise TypeError(f"a value of type {type(value).__name__} has no JSON form: {value!r}")


def _text(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of type {type(key).__name__} has no JSON form: {key!r}")
    return key
