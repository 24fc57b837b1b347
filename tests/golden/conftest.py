"""Format of the golden files: sorted keys, and one line per list of numbers, so that diffs are readable."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_LIST = re.compile(r'\[\s+([^\[\]{}"]*?)\s+\]')
_SPACE = re.compile(r"\s+")


def dumped(value: Any) -> str:
    """Return a value as JSON with one line per list of numbers."""
    text = json.dumps(value, indent=1, sort_keys=True)
    return _LIST.sub(lambda match: f"[{_SPACE.sub(' ', match[1])}]", text) + "\n"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, Any], Any]:
    """Read a golden file; with --regenerate-golden, first write the given value to it."""

    def read(file: Path, now: Any) -> Any:
        if request.config.getoption("--regenerate-golden"):
            file.write_text(dumped(now), encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))

    return read
