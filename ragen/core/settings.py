"""`Settings`: the base of every configuration model. Frozen and strict; unknown keys are rejected.

Some models are chosen by a name in their setting `type`: those of environments and searches, which a registry or
`module:attribute` names (`named_settings`). The model of a name is imported when settings with that name are validated,
so a run loads its own environment and no other.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializeAsAny,
    Tag,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic_core import CoreSchema, core_schema

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.lookup import TARGET


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

    @field_validator("*")
    @classmethod
    def _fit_64_bits(cls, value: Any) -> Any:
        """Reject integers that TOML and Arrow cannot hold."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"should be an integer of 64 bits: at least {-(2**63)}, at most {2**63 - 1}")
        return value


S = TypeVar("S", bound=Settings)

ANY_TARGET = "module:attribute"
"""Stands for all names of this form."""


class OpenSettings(Settings, extra="allow"):
    """Settings of anything, described by its `type` alone."""

    type: str
    """A registered name, or `module:attribute`."""


class TargetSettings(OpenSettings):
    """Settings of something named by `module:attribute`, which defines what they are."""

    type: str = Field(pattern=f"^{TARGET.pattern}$", title=ANY_TARGET)
    """`module:attribute`."""


_OPEN: dict[str, type[Settings]] = {"": OpenSettings, ANY_TARGET: TargetSettings}


def with_type(model: type[S], name: str) -> type[S]:
    """Return the model with `name` as its `type`."""
    if model.model_fields["type"].default == name:
        return model
    kind: Any = Literal[name]
    return create_model(
        model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, type=(kind, name)
    )


def named_settings(names: Collection[str], model_of: Callable[[str], type[Settings]]) -> Any:
    """Return the annotation of settings whose model depends on the name in their `type`.

    Args:
        names: The known names; a `module:attribute` is allowed as well.
        model_of: Returns the model of a name. It raises a StarPOError if there is none or if it cannot be loaded, and
            then only settings with that name are invalid.
    """
    known = frozenset(names)

    def tag(value: Any) -> str | None:
        name = _type_of(value)
        if not isinstance(name, str):
            return None
        return ANY_TARGET if name not in known and TARGET.fullmatch(name) else name

    tags = (*names, ANY_TARGET)
    choices = tuple(Annotated[Settings, NamedModel(model_of, name), Tag(name)] for name in tags)
    as_any: Any = SerializeAsAny  # a variable, since the choices are no types to a type checker
    return Annotated[as_any[Union[choices]], Discriminator(tag)]  # noqa: UP007


@dataclass(frozen=True)
class NamedModel:
    """Annotation of settings whose model follows from their `type`, and is imported only to validate or describe them.

    Attributes:
        model_of: Returns the model of a name.
        name: The only name that reaches this annotation, `ANY_TARGET`, or "" if any does.
    """

    model_of: Callable[[str], type[Settings]]
    name: str = ""

    def model(self) -> type[Settings]:
        """Return the model that describes the settings; an open one if the model of the name cannot be loaded."""
        if self.name in _OPEN:
            return _OPEN[self.name]
        try:
            return self.model_of(self.name)
        except StarPOError:
            return _open_settings(self.name)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._validated)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if _is_by_name.get():
            return {"type": "object", "title": self.name}
        model = self.model()
        place = f"{model.__module__}.{model.__qualname__}:{id(model)}"
        described: Any = model.__pydantic_core_schema__
        # With a place it becomes one definition, wherever it is used.
        return handler(core_schema.definitions_schema(described | {"ref": place}, []))

    def _validated(self, value: Any, info: ValidationInfo) -> Settings:
        try:
            model = self.model_of(_type_of(value))
        except StarPOError as error:
            raise ValueError(str(error)) from error
        return model.model_validate_json(json.dumps(value)) if info.mode == "json" else model.model_validate(value)


@cache
def _open_settings(name: str) -> type[Settings]:
    return with_type(OpenSettings, name)


_is_by_name: ContextVar[bool] = ContextVar("_is_by_name", default=False)


@contextmanager
def described_by_name() -> Iterator[None]:
    """Within this context, the JSON schema of named settings consists of the names, without importing any model."""
    token = _is_by_name.set(True)
    try:
        yield
    finally:
        _is_by_name.reset(token)


def _type_of(value: Any) -> Any:
    """Return the `type` of settings, validated or raw; None if missing."""
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
