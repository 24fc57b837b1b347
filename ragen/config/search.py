"""`SearchConfig`: settings of any search, discriminated by `type`: a registered name, or `module:attribute`."""

from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from starpo.ragen.core.candidates import CandidatesConfig
from starpo.ragen.core.lookup import settings_model
from starpo.ragen.core.registry import SEARCHES
from starpo.ragen.core.settings import named_settings, with_type


@cache
def _settings_type(name: str) -> type[CandidatesConfig]:
    """Return the settings model of a search, with its name as the `type`.

    Raises:
        RegistryError: If it cannot be loaded, or has no settings model.
    """
    return with_type(settings_model(SEARCHES, name, CandidatesConfig), name)


if TYPE_CHECKING:
    SearchConfig: TypeAlias = CandidatesConfig
else:
    SearchConfig = named_settings(SEARCHES, _settings_type)
