"""`EnvironmentConfig`: settings of any environment, discriminated by `type`: a registered name, or `module:attribute`.

An environment is imported when settings name it; one that cannot be imported only affects configurations that use it.
"""

from typing import TYPE_CHECKING, TypeAlias

from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.settings import named_settings
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import settings_type

if TYPE_CHECKING:
    EnvironmentConfig: TypeAlias = EnvironmentSettings
else:
    EnvironmentConfig = named_settings(ENVIRONMENTS, settings_type)
