"""`Settings`: the base of every configuration model. Frozen, strict, unknown keys rejected, fields documented."""

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
