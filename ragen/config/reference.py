"""The settings reference, docs/settings.md, generated from the models by `make settings`."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic_settings import BaseSettings

from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import alternatives
from starpo.ragen.core.lookup import Entry, resolve
from starpo.ragen.core.registry import REWARDS

_HEAD = """# Settings

Read off the models in `ragen/config` and `ragen/envs` (`make settings`). A preset is a TOML file of these settings
(`flows/presets`); `--set path=value` changes one, and `--set path=null` makes
one none. A change starts over the stages that have the setting in their key, and all that follow from them.
"""
_RUNTIME = """## Environment variables

Where things are and how much of the machine to use. Of these only the number of threads can move a result, in its
last bits.
"""
_BOUNDS = {"minimum": ">= {}", "exclusiveMinimum": "> {}", "maximum": "<= {}", "exclusiveMaximum": "< {}"}


def page() -> str:
    """Return the whole reference as markdown."""
    variables = (_table(model, _variable_of(model)) for model in (Runtime, RayRuntime))
    return "\n".join([_HEAD, *_sections("", StarPOConfig), *_components(), _RUNTIME, *variables])


def _components() -> Iterator[str]:
    """Yield the options of the built-in reward components, which are not fields of a model."""
    for name, entry in REWARDS.items():
        if isinstance(entry, Entry) and entry.options:
            yield from _sections(f"reward.options.{name}", resolve(entry.options))


def _variable_of(model: type[BaseSettings]) -> Callable[[str], str]:
    prefix = str(model.model_config["env_prefix"])
    return lambda name: f"{prefix}{name.upper()}"


def _sections(path: str, model: type[BaseModel], kind: str = "") -> Iterator[str]:
    title = f"{path or 'The run'}{f', type = {kind!r}' if kind else ''}"
    inner = {name: alternatives(field.annotation) for name, field in model.model_fields.items()}
    table = _table(model, lambda name: f"{path}.{name}".lstrip("."), skipped={name for name in inner if inner[name]})
    yield f"## {title}\n\n{(model.__doc__ or '').strip().partition(chr(10))[0]}\n\n{table}"
    for name, models in inner.items():
        for tag, part in models.items():
            if part.model_config.get("extra") == "allow":
                continue  # settings of an environment outside this repository
            yield from _sections(f"{path}.{name}".lstrip("."), part, tag if len(models) > 1 else "")


def _table(model: type[BaseModel], named: Callable[[str], str], skipped: Collection[str] = ()) -> str:
    schema = model.model_json_schema()["properties"]
    rows = ["| setting | values | default | |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if name in skipped or name == "type":
            continue
        default = "needed" if field.is_required() else _value(field.get_default(call_default_factory=True))
        if field.default_factory and issubclass(model, BaseSettings):
            default = "the machine's"
        text = re.sub(r"\s+", " ", field.description or "").replace("|", "\\|")
        rows.append(f"| `{named(name)}` | {_values(schema[name])} | {default} | {text} |")
    return "\n".join(rows) + "\n"


def _values(schema: dict[str, Any]) -> str:
    """Describe the allowed values of a setting, such as `number > 0`, or its choices."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_values(part) for part in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(map(_value, schema["enum"]))
    bounds = [bound.format(schema[name]) for name, bound in _BOUNDS.items() if name in schema]
    kind = {"array": "list", "object": "table", "null": "none"}.get(schema.get("type", ""), schema.get("type", "table"))
    return " ".join([kind, ", ".join(bounds)]).strip()


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{json.dumps(value.model_dump(mode='json') if isinstance(value, BaseModel) else value)}`"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
