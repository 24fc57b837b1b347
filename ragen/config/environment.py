"""`EnvironmentConfig`: the settings of any registered environment, told apart by `type`.

An environment that cannot be imported is an error for whoever asks for it, and for nobody else: a stand-in takes the
place of its settings, which refuses all of them with the reason.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import Field, create_model, model_validator

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.registry import ENVIRONMENTS, load
from starpo.ragen.envs.base import EnvironmentSettings


def settings_type(name: str) -> type[EnvironmentSettings]:
    """The settings of a registered environment, or what stands in for them where it cannot be used."""
    try:
        environment = load(ENVIRONMENTS, name)
    except StarPOError as error:
        return _stand_in(name, str(error))
    settings = getattr(environment, "settings_type", None)
    if not (isinstance(settings, type) and issubclass(settings, EnvironmentSettings)):
        found = f"settings_type = {settings!r}; expected a class derived from EnvironmentSettings"
    elif (found_name := settings.model_fields["type"].default) != name:
        found = f'{settings.__name__} has type = {found_name!r}; expected `type: Literal["{name}"] = "{name}"`'
    else:
        return settings
    return _stand_in(name, f"'{name}' (registered as {ENVIRONMENTS[name]}) cannot be used: {found}")


def _stand_in(name: str, reason: str) -> type[EnvironmentSettings]:
    def refuse(_: Any) -> Any:
        raise ValueError(f"environment {reason}")

    validators: dict[str, Any] = {"refuse": model_validator(mode="before")(refuse)}
    kind: Any = Literal[name]
    return create_model(f"Unusable_{name}", __base__=EnvironmentSettings, __validators__=validators, type=(kind, name))


if TYPE_CHECKING:
    EnvironmentConfig: TypeAlias = EnvironmentSettings
else:
    EnvironmentConfig = Annotated[
        Union[tuple(settings_type(name) for name in ENVIRONMENTS)],  # noqa: UP007
        Field(discriminator="type"),
    ]
