"""`SearchConfig`: settings of any search, discriminated by `type`: a registered name, or `module:attribute`."""

from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from starpo.ragen.core.candidates import CandidatesConfig
from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.lookup import attached
from starpo.ragen.core.registry import SEARCHES
from starpo.ragen.core.settings import named_settings, with_type


@cache
def _settings_type(name: str) -> type[CandidatesConfig]:
    """Return the settings model of a search, with its name as the `type`.

    Raises:
        RegistryError: If it cannot be loaded, or has no settings model.
    """
    model = attached(SEARCHES, name, "options")
    if not (isinstance(model, type) and issubclass(model, CandidatesConfig)):
        raise RegistryError(
            f"search '{name}' ({SEARCHES[name]}) has options = {model!r}; expected a class derived from "
            "starpo.ragen.core.candidates.CandidatesConfig"
        )
    return with_type(model, name)


if TYPE_CHECKING:
    SearchConfig: TypeAlias = CandidatesConfig
else:
    SearchConfig = named_settings(SEARCHES, _settings_type)
