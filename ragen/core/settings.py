"""`Settings`: the base of every configuration model. Frozen and strict; unknown keys are rejected.

Some models are chosen by a name in their setting `type`: those of environments and searches, which a registry or
`module:attribute` names.
"""

import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, create_model

from starpo.ragen.core.errors import StarPOError


class Settings(BaseModel):
    """A group of settings that affect results; serialised as JSON into stage keys and manifests."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )


S = TypeVar("S", bound=Settings)


def named_settings(model: type[S], name: str) -> type[S]:
    """Return the model with `name` as its `type`."""
    if model.model_fields["type"].default == name:
        return model
    kind: Any = Literal[name]
    return create_model(
        model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, type=(kind, name)
    )


def type_of(value: Any) -> Any:
    """Return the `type` of settings, validated or raw; None if missing."""
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)


def as_own_settings(model_of: Callable[[str], type[S]], value: Any, info: ValidationInfo) -> S:
    """Validate settings with the model of what they name (for a pydantic wrap validator).

    Raises:
        ValueError: If there is no such thing, or it cannot be loaded.
    """
    try:
        model = model_of(type_of(value))
    except StarPOError as error:
        raise ValueError(str(error)) from error
    return model.model_validate_json(json.dumps(value)) if info.mode == "json" else model.model_validate(value)
