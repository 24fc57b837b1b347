"""`Settings`: the base of every configuration model. Frozen, strict, unknown keys rejected, fields documented."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A group of settings that change numbers; it goes into stage keys and manifests as JSON."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )


def without_empty(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Serialised settings less those of these that are empty: most keys need not tell that something is not used."""
    return {name: value for name, value in values.items() if value or name not in names}
