"""What commands print with `--json`, held against its schema."""

import json
from functools import cache
from typing import Any

import jsonschema

from starpo.flows.console.documents.forms import schema


@cache
def _validator(form: str) -> Any:
    return jsonschema.Draft202012Validator(schema(form))


def check(form: str, printed: str) -> Any:
    """Return the document that was printed, which is all that was printed."""
    document = json.loads(printed, parse_constant=lambda name: f"{name} is no JSON")
    errors = [f"{error.json_path}: {error.message[:300]}" for error in _validator(form).iter_errors(document)]
    assert errors == []
    return document
