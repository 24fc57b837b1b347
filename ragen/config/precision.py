"""`precision`: one setting for the dtypes that settings have in several places, resolved where the settings are read.

precision, dtypes as given --fill_in--> every dtype, recorded        a later `precision` --without_dtypes--> fill_in
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Literal

from pydantic import BaseModel

from starpo.ragen.config.device import Device
from starpo.ragen.config.processor import Processor

Precision = Literal["auto", "float32", "bfloat16"]

DTYPES = ("update.dtype", "rollout.torch.dtype", "policy.fine_tuning.dtype", "teacher.dtype")
"""The settings that `precision` fills in."""
_OPTIONAL = ("policy.fine_tuning", "teacher")
"""Tables of these that a run need not have."""


def fill_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve `precision`, and set every dtype that is not set to it.

    Args:
        settings: Those of a run before validation: tables, or models.

    Returns:
        The settings with 'float32' or 'bfloat16' for 'auto'; as they are if `precision` is none of the three.
    """
    precision = settings.get("precision")
    if precision == "auto":
        precision = best_dtype() if _get(settings, "policy.type") == "pretrained" else "float32"
    elif precision not in ("float32", "bfloat16"):
        return dict(settings)
    left_out = {table for table in _OPTIONAL if _get(settings, table) is None}
    left_out |= {"teacher"} if _get(settings, "teacher.type") == "server" else set()
    left_out |= set() if _get(settings, "rollout.engine") in (None, "torch") else {"rollout.torch"}
    places = [path.split(".") for path in DTYPES if path.rpartition(".")[0] not in left_out]
    filled = reduce(lambda table, names: _with(table, names, precision), places, dict(settings))
    return {**filled, "precision": precision}


def without_dtypes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, nested as in TOML, without the dtypes that `precision` fills in."""
    return reduce(_without, (path.split(".") for path in DTYPES), dict(settings))


def best_dtype() -> Literal["float32", "bfloat16"]:
    """Return 'bfloat16' if this machine has a GPU, or a processor that multiplies matrices in it; else 'float32', which
    other processors are several times faster in."""
    return "bfloat16" if Processor.here().multiplies_bfloat16 or Device.has_gpu() else "float32"


def _get(settings: Any, path: str) -> Any:
    """Return the setting at a dotted path of tables or models; None if there is none."""
    for name in path.split("."):
        settings = settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)
    return settings


def _with(table: Any, names: Sequence[str], dtype: str) -> Any:
    """Return a table or model with the dtype where none is given; another value than a table is left to validation."""
    if not isinstance(table, Mapping | BaseModel):
        return table
    name, *inner = names
    is_given = name in (table if isinstance(table, Mapping) else table.model_fields_set)
    if is_given and not inner:
        return table
    if inner:
        below = _get(table, name) if is_given or isinstance(table, BaseModel) else {}
        value = _with(below, inner, dtype)
    else:
        value = dtype
    return {**table, name: value} if isinstance(table, Mapping) else table.model_copy(update={name: value})


def _without(table: Any, names: Sequence[str]) -> Any:
    name, *inner = names
    if not isinstance(table, Mapping) or name not in table:
        return table
    if inner:
        return {**table, name: _without(table[name], inner)}
    return {other: value for other, value in table.items() if other != name}
