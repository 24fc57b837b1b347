"""The tree of settings, read off the models: which tables there are, and which of them have alternatives."""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


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


def inherited(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A table without the options of what another table replaces: of `advantage_options` where `advantage` changes."""
    replaced = {f"{name}_options" for name, value in extra.items() if name in base and base[name] != value}
    return {name: value for name, value in base.items() if name not in replaced}
