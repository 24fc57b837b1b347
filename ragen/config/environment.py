"""`EnvironmentConfig`: the settings of any registered environment, told apart by `type`."""

from typing import TYPE_CHECKING, Annotated, TypeAlias, Union

from pydantic import Field

from ragen.envs.base import EnvironmentSettings
from ragen.registry import ENVIRONMENTS, load

if TYPE_CHECKING:
    EnvironmentConfig: TypeAlias = EnvironmentSettings
else:
    EnvironmentConfig = Annotated[
        Union[tuple(load(ENVIRONMENTS, name).settings_type for name in ENVIRONMENTS)],  # noqa: UP007
        Field(discriminator="type"),
    ]
