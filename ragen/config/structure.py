"""The tree of settings, read off the models: which tables there are, their alternatives, how they merge and differ.

Merging is deep: tables are merged key by key, everything else is replaced. Two exceptions: a table that becomes another
alternative (the environment's or the policy's `type` changes) is replaced, as are the options of a part of the
objective that gives way to another (`advantage_options` where `advantage` changes) and the digest of a file or folder
(`digest` where `path` changes), because the settings of one mean nothing to the other; and an empty table empties the
inherited one.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted

Table = dict[str, Any]

_HAVE_DIGESTS = {"path", "folder", "task", "name_or_path"}
"""Settings that name files, of whose content the setting `digest` beside them is; those of others are `NAME_digest`."""


def alternatives(annotation: Any) -> dict[str, type[BaseModel]]:
    """The models that a table may be: several for a union told apart by `type`, one for a plain table, else none.

    Returns:
        By the default of the model's `type`, or by what `type` may be where it has none, or by the class's name.
    """
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return {tag: model for part in get_args(annotation) for tag, model in alternatives(part).items()}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get("type")
        if field is None:
            return {annotation.__name__: annotation}
        return {str(field.title if field.is_required() else field.default): annotation}
    return {}


def setting(annotation: Any, key: str) -> Any:
    """The annotation of the setting `key` in a table of this annotation; None where there is no such setting."""
    models = alternatives(annotation)
    for model in models.values():
        if key in model.model_fields:
            return model.model_fields[key].annotation
    arguments = get_args(annotation)
    return arguments[-1] if arguments and not models else None


def merged(base: Mapping[str, Any], extra: Mapping[str, Any], annotation: Any) -> Table:
    """`base` with `extra` on top, both left as they are; `annotation` is that of the table."""
    result = _inherited(base, extra)
    for key, value in extra.items():
        before, inner = result.get(key), setting(annotation, key)
        if isinstance(value, dict) and isinstance(before, dict) and value and not _is_other(before, value, inner):
            result[key] = merged(before, value, inner)
        else:
            result[key] = value
    return result


def nested(values: Mapping[str, Any]) -> Table:
    """Settings by dotted path as one table, so that a changed `type` and the settings that go with it arrive together.

    Whole tables come before what is inside them, whatever order they were given in.

    Raises:
        ConfigError: If one is inside another that is no table.
    """
    table: Table = {}
    for path, value in sorted(deepcopy(dict(values)).items(), key=lambda item: item[0].count(".")):
        *names, key = path.split(".")
        inner = table
        for name in names:
            inner = inner.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"override {path} = {quoted(value)}: another override sets '{name}' to {quoted(inner)}, not a table"
                )
        inner[key] = value
    return table


def flattened(table: Mapping[str, Any], stop: Collection[str] = (), prefix: str = "") -> Table:
    """Nested tables as dotted paths; a table at a path of `stop` is a value, and so is an empty one."""
    flat: Table = {}
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in stop:
            flat |= flattened(value, stop, f"{path}.")
        else:
            flat[path] = value
    return flat


def changed_settings(old: Any, new: Any, place: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Where nested tables differ, as they are written in JSON: dotted path, (was, is)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from changed_settings(old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):
        yield place, (old, new)


def _inherited(base: Mapping[str, Any], extra: Mapping[str, Any]) -> Table:
    """A table without the options of what another table replaces: of `advantage_options` where `advantage` changes."""
    changed = {name for name, value in extra.items() if name in base and base[name] != value}
    replaced = {f"{name}_{of}" for name in changed for of in ("options", "digest")}
    if changed & _HAVE_DIGESTS:
        replaced.add("digest")
    return {name: value for name, value in base.items() if name not in replaced}


def _is_other(base: Table, extra: Table, annotation: Any) -> bool:
    """Is it another alternative? A plain table may also have a setting called `type`; it has only one alternative."""
    has_changed = "type" in base and "type" in extra and base["type"] != extra["type"]
    models = alternatives(annotation)
    is_any = any(model.model_config.get("extra") == "allow" for model in models.values())  # of a mixture's part
    return has_changed and (len(models) > 1 or is_any)
