"""`Settings`: the base of every configuration model. Frozen and strict; unknown keys are rejected."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A group of settings that affect results; serialised as JSON into stage keys and manifests."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )
