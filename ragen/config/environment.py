"""`EnvironmentConfig`: the settings of any registered environment, told apart by `type`."""

from typing import Annotated, Union

from pydantic import Field

from ragen.registry import ENVIRONMENTS, load


EnvironmentConfig = Annotated[
    Union[tuple(load(ENVIRONMENTS, name).settings_type for name in ENVIRONMENTS)],  # type: ignore[misc]  # noqa: UP007
    Field(discriminator="type"),
]
