"""`EnvironmentConfig`: settings of any environment, discriminated by `type`: a registered name, or `module:attribute`.

An environment that cannot be imported only affects configurations that use it: its settings are replaced by a stand-in
that rejects every input with the reason.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import (
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    WrapValidator,
    create_model,
    model_validator,
)

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.lookup import TARGET
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.settings import type_of
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import as_its_own, settings_type


def usable_settings(name: str) -> type[EnvironmentSettings]:
    """Return the settings model of a registered environment, or a stand-in if the environment cannot be used."""
    try:
        return settings_type(name)
    except StarPOError as error:
        reason = str(error)

    def refuse(_: Any) -> Any:
        raise ValueError(reason)

    validators: dict[str, Any] = {"refuse": model_validator(mode="before")(refuse)}
    kind: Any = Literal[name]
    return create_model(f"Unusable_{name}", __base__=EnvironmentSettings, __validators__=validators, type=(kind, name))


class OtherEnvironment(EnvironmentSettings, extra="allow"):
    """Settings of an environment named by `module:attribute`, which defines what they are."""

    type: str = Field(pattern=f"^{TARGET.pattern}$", title="module:attribute")
    """`module:attribute` of a class derived from `Environment`."""


def _tag(value: Any) -> str | None:
    name = type_of(value)
    if not isinstance(name, str):
        return None
    return name if name in ENVIRONMENTS or not TARGET.fullmatch(name) else "module:attribute"


if TYPE_CHECKING:
    EnvironmentConfig: TypeAlias = EnvironmentSettings
else:
    _CHOICES = [Annotated[usable_settings(name), Tag(name)] for name in ENVIRONMENTS]
    _CHOICES.append(Annotated[OtherEnvironment, WrapValidator(as_its_own), Tag("module:attribute")])
    EnvironmentConfig = Annotated[SerializeAsAny[Union[tuple(_CHOICES)]], Discriminator(_tag)]  # noqa: UP007
