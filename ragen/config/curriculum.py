"""`CurriculumConfig`: settings of any curriculum, discriminated by `type`: a registered name, or `module:attribute`."""

from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from starpo.ragen.core.lookup import settings_model
from starpo.ragen.core.registry import CURRICULA
from starpo.ragen.core.settings import named_settings, with_type

if TYPE_CHECKING:
    from starpo.ragen.core.curriculum import CurriculumSettings


@cache
def _settings_type(name: str) -> "type[CurriculumSettings]":
    from starpo.ragen.core.curriculum import CurriculumSettings

    return with_type(settings_model(CURRICULA, name, CurriculumSettings), name)


if TYPE_CHECKING:
    CurriculumConfig: TypeAlias = CurriculumSettings
else:
    CurriculumConfig = named_settings(CURRICULA, _settings_type)
