"""The tree of settings, derived from the models: tables, their alternatives, merging and differences.

Merging is deep: tables are merged key by key, everything else is replaced. There are two exceptions. First, settings
that mean nothing to their new context are dropped: a table that becomes another alternative (the environment's or the
policy's `type` changes) is replaced, as are the options of a replaced part of the objective (`advantage_options` where
`advantage` changes), those of a replaced filter, with its `keep_count`, those of reward components that a new list
leaves out, and the digest of a replaced file or folder (`digest` where `path` changes). Second, an empty table clears
the inherited one.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.settings import ANY_TARGET, NamedModel
from starpo.ragen.core.visible import quoted

Table = dict[str, Any]

_HAVE_DIGESTS = {"path", "folder", "task", "name_or_path"}
"""Settings that name files whose content digest is the setting `digest` beside them; for all others it is
`NAME_digest`."""


def alternatives(annotation: Any) -> dict[str, Callable[[], type[BaseModel]]]:
    """Return the models that a table may have: several for a union discriminated by `type`, one for a plain table, else
    none.

    Returns:
        Functions that return a model, since those of environments are imported for it (`NamedModel`). Keyed by the
        model's name, by the default of its `type`, or by the class name.
    """
    if get_origin(annotation) is Annotated:
        named = [part for part in get_args(annotation) if isinstance(part, NamedModel)]
        return {one.name: one.model for one in named} or alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return {tag: model for part in get_args(annotation) for tag, model in alternatives(part).items()}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get("type")
        return {str(field.default) if field else annotation.__name__: lambda: annotation}
    return {}


def setting(annotation: Any, key: str, kind: Any = None) -> Any:
    """Return the annotation of the setting `key` in a table of this annotation; None if there is no such setting.

    Args:
        annotation: Annotation of the table.
        key: Name of the setting.
        kind: `type` of the table, which selects one of its alternatives; None for any of them.
    """
    models = alternatives(annotation)
    chosen = (models.get(kind) or models.get(ANY_TARGET)) if isinstance(kind, str) else None
    for model_of in [chosen] if chosen else list(models.values()):
        fields = model_of().model_fields
        if key in fields:
            return fields[key].annotation
    arguments = get_args(annotation)
    return arguments[-1] if arguments and not models else None


def merged(base: Mapping[str, Any], extra: Mapping[str, Any], annotation: Any) -> Table:
    """Return `base` with `extra` merged on top; neither is modified. `annotation` is that of the table."""
    result = _inherited(base, extra)
    for key, value in extra.items():
        before = result.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and value:
            inner = setting(annotation, key, extra.get("type", base.get("type")))
            result[key] = value if _is_other(before, value, inner) else merged(before, value, inner)
        else:
            result[key] = value
    return result


def nested(values: Mapping[str, Any]) -> Table:
    """Convert settings by dotted path to one table, so that a changed `type` and its settings are applied together.

    Whole tables are set before their members, regardless of the order given.

    Raises:
        ConfigError: If a setting is inside another one that is not a table.
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
    """Convert nested tables to dotted paths; tables at the paths in `stop`, and empty tables, are kept as values."""
    flat: Table = {}
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in stop:
            flat |= flattened(value, stop, f"{path}.")
        else:
            flat[path] = value
    return flat


def changed_settings(old: Any, new: Any, place: str = "") -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the differences between nested tables, compared as JSON: dotted path, (old value, new value)."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from changed_settings(old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif not _is_same_json(old, new):
        yield place, (old, new)


def _is_same_json(old: Any, new: Any) -> bool:
    if type(old) is type(new) and isinstance(old, str | int | None):
        return bool(old == new)
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _inherited(base: Mapping[str, Any], extra: Mapping[str, Any]) -> Table:
    """Drop the options and digests of replaced settings, such as `advantage_options` where `advantage` changes.

    The options of a filter, and of reward components by their names, are called `options`.
    """
    changed = {name for name, value in extra.items() if name in base and base[name] != value}
    replaced = {f"{name}_{of}" for name in changed for of in ("options", "digest")}
    if changed & _HAVE_DIGESTS:
        replaced.add("digest")
    if "strategy" in changed:
        replaced |= {"options", "keep_count"}
    kept = {name: value for name, value in base.items() if name not in replaced}
    if "components" in changed and isinstance(extra["components"], list) and isinstance(kept.get("options"), dict):
        kept["options"] = {name: of for name, of in kept["options"].items() if name in extra["components"]}
    return kept


def _is_other(base: Table, extra: Table, annotation: Any) -> bool:
    """Whether the table changes to another alternative. A plain table may also have a setting called `type`, but has
    only one alternative, which is closed."""
    if "type" not in base or "type" not in extra or base["type"] == extra["type"]:
        return False
    models = alternatives(annotation)
    return len(models) > 1 or any(model().model_config.get("extra") == "allow" for model in models.values())
