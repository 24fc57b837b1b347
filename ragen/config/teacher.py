"""`TeacherConfig`: settings of a teacher, discriminated by `type`; `teachers` has them, imported when one is set."""

from typing import TYPE_CHECKING, TypeAlias

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.settings import Settings, named_settings


def _settings_type(name: str) -> type[Settings]:
    """Return the settings model of a type of teacher.

    Raises:
        ConfigError: If there is no such type.
    """
    from starpo.ragen.config.teachers import TEACHERS

    if name not in TEACHERS:
        raise ConfigError(f"there is no teacher of type '{name}'; expected one of {', '.join(TEACHERS)}")
    return TEACHERS[name]


if TYPE_CHECKING:
    from starpo.ragen.config.teachers import TeacherSettings

    TeacherConfig: TypeAlias = TeacherSettings
else:
    TeacherConfig = named_settings(("model", "run", "policy", "server"), _settings_type)
