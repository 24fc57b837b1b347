"""How the golden files are written: sorted, and every list of numbers on a line, so that a change reads as one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_LIST = re.compile(r'\[\s+([^\[\]{}"]*?)\s+\]')
_SPACE = re.compile(r"\s+")


def dumped(value: Any) -> str:
    """A value as JSON, one line a list of numbers."""
    text = json.dumps(value, indent=1, sort_keys=True)
    return _LIST.sub(lambda found: f"[{_SPACE.sub(' ', found[1])}]", text) + "\n"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, Any], Any]:
    """What a golden file holds; with --regenerate-golden what is given here, which is then written there."""

    def read(file: Path, now: Any) -> Any:
        if request.config.getoption("--regenerate-golden"):
            file.write_text(dumped(now), encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))

    return read
