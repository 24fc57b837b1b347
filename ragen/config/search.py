"""`SearchConfig`: settings of any search, discriminated by `type`: a registered name, or `module:attribute`."""

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union

from pydantic import Discriminator, Field, SerializeAsAny, Tag, ValidationInfo, WrapValidator

from starpo.ragen.core.candidates import CandidatesConfig
from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.lookup import TARGET, attached
from starpo.ragen.core.registry import SEARCHES
from starpo.ragen.core.settings import as_own_settings, named_settings, type_of


class OtherSearch(CandidatesConfig, extra="allow"):
    """Settings of a search of another package, or named by `module:attribute`, which defines what they are."""

    type: str = Field(title="module:attribute")
    """A name that a package registers, or `module:attribute` of a function (docs/extend.md)."""


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
    return named_settings(model, name)


def _as_its_own(value: Any, _: Any, info: ValidationInfo) -> CandidatesConfig:
    return as_own_settings(_settings_type, value, info)


def _tag(value: Any) -> str | None:
    name = type_of(value)
    if not isinstance(name, str):
        return None
    return "module:attribute" if name in SEARCHES.packages or TARGET.fullmatch(name) else name


if TYPE_CHECKING:
    SearchConfig: TypeAlias = CandidatesConfig
else:
    # packages are not imported here: they may import the configuration
    _CHOICES = [Annotated[_settings_type(name), Tag(name)] for name in SEARCHES if name not in SEARCHES.packages]
    _CHOICES.append(Annotated[OtherSearch, WrapValidator(_as_its_own), Tag("module:attribute")])
    SearchConfig = Annotated[SerializeAsAny[Union[tuple(_CHOICES)]], Discriminator(_tag)]  # noqa: UP007
