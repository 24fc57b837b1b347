"""Schemas of what commands print with `--json`: a change of them is a change for programs that read it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starpo.flows.console.documents.forms import FORMS, schema


def test_schemas_are_the_golden_ones(golden: Callable[[Path, Any], Any]) -> None:
    """Names, types and what is required; `--regenerate-golden` rewrites the file, whose diff belongs in CHANGELOG."""
    now = {form: _bones(schema(form)) for form in FORMS if not form.endswith("--settings")}
    assert json.loads(json.dumps(now)) == golden(Path(__file__).parent / "documents.json", now)


def _bones(part: Any) -> Any:
    """Return a schema without words, and without settings, whose own reference is docs/settings.md."""
    if isinstance(part, list):
        return [_bones(each) for each in part]
    if not isinstance(part, dict):
        return part
    definitions = part.get("$defs", {})
    kept = {name: of for name, of in definitions.items() if not name.endswith(("Settings", "Config", "Sweep", "Grid"))}
    return {
        name: _bones(kept if name == "$defs" else value)
        for name, value in part.items()
        if not (name == "description" and isinstance(value, str))
    }
