"""Tasks of programs."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from starpo.ragen.methods.programs.settings import ProgramSettings


@lru_cache(maxsize=4)
def _read(path: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(line) for line in Path(path).read_text().splitlines() if line.strip())


def load_tasks(settings: ProgramSettings) -> Sequence[Mapping[str, Any]]:
    """Return all tasks."""
    return _read(settings.tasks)


def task_of(settings: ProgramSettings, env_seed: int) -> Mapping[str, Any]:
    """Return the task of a seed."""
    tasks = load_tasks(settings)
    return tasks[env_seed % len(tasks)]


def digest(task: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(dict(task), sort_keys=True).encode()).hexdigest()[:16]
