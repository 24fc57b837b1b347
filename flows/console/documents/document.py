"""`JsonDocument`: the base of what commands print with `--json`."""

from pydantic import BaseModel, ConfigDict


class JsonDocument(BaseModel):
    """An immutable record; all its fields are always printed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
    )
