"""Tasks: the initial states of an environment that a program plays, rows of JSON values.

file of JSON lines | module:attribute | hf:NAME:SPLIT -> rows -> digest
                                                   env_seed -> a row
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import EnvironmentFault, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.lookup import TARGET, resolve
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.data_sets import PREFIX, data_set_rows

if TYPE_CHECKING:
    from starpo.ragen.methods.programs.settings import ProgramSettings

Task = Mapping[str, Any]
"""Field -> JSON value."""

_MAX_NAMED = 3
_TASK = TypeAdapter(dict[str, JsonValue], config=ConfigDict(allow_inf_nan=False))


@lru_cache(maxsize=4)
def load_tasks(settings: "ProgramSettings") -> Sequence[Task]:
    """Return all tasks, in the order of their source.

    Raises:
        EnvironmentFault: If they cannot be read, or are not those that the settings name.
    """
    tasks = read_tasks(settings.tasks)
    digest = digest_of_all(tasks)
    if digest != settings.tasks_digest:
        raise EnvironmentFault(
            f"{settings.tasks} has changed: its {len(tasks)} tasks have the digest {digest}, but the settings name "
            f"{settings.tasks_digest}. Restore them, or leave tasks_digest out of the settings to use them as they are "
            "now; a source that differs in every process cannot be used"
        )
    return tasks


def task_of(settings: "ProgramSettings", env_seed: int) -> Task:
    """Return the task that a seed draws, each with equal probability.

    Raises:
        EnvironmentFault: See `load_tasks`.
    """
    return python_random(env_seed, "task").choice(load_tasks(settings))


def digest(task: Task) -> str:
    """Return a digest of a task's values, 16 hexadecimal digits; the order of its fields does not count."""
    return hashlib.blake2b(as_json(task, sort_keys=True).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def as_json(value: Any, *, sort_keys: bool = False) -> str:
    """Return a value as JSON on one line.

    Raises:
        ValueError, TypeError: If it is not a JSON value; NaN is none.
    """
    return json.dumps(value, sort_keys=sort_keys, allow_nan=False, ensure_ascii=False)


def digest_of_all(tasks: Sequence[Task]) -> str:
    """Return a digest of tasks in their order, 16 hexadecimal digits."""
    return hashlib.sha256("\n".join(map(digest, tasks)).encode()).hexdigest()[:16]


def read_tasks(source: str) -> tuple[Task, ...]:
    """Read the tasks of a source (`ProgramSettings.tasks`).

    Raises:
        EnvironmentFault: If they cannot be read, there are none, or some are duplicates.
    """
    rows: Iterator[tuple[str, Any]]
    if source.startswith(PREFIX):
        loaded = data_set_rows(source, Runtime.current().plugin_limit)
        rows = ((f"row {number}", row) for number, row in enumerate(loaded, 1))
    elif TARGET.fullmatch(source) and not Path(source).exists():
        rows = _of_module(source)
    else:
        rows = _of_file(Path(source))
    places: dict[str, str] = {}
    tasks: list[Task] = []
    repeated: list[str] = []
    for place, row in rows:
        tasks.append(_checked(source, place, row))
        first = places.setdefault(digest(row), place)
        if first != place:
            repeated.append(f"{place} repeats {first}")
    if not tasks:
        raise EnvironmentFault(f"{source} holds no tasks; expected at least one")
    if repeated:
        named = "; ".join(repeated[:_MAX_NAMED]) + ("; ..." if len(repeated) > _MAX_NAMED else "")
        raise EnvironmentFault(
            f"{source}: {len(repeated)} of {len(tasks)} tasks are duplicates ({named}); leave them out, or tell them "
            "apart by a field of their own"
        )
    return tuple(tasks)


def _of_file(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EnvironmentFault(f"{path} cannot be read ({reason}); expected a file of JSON lines") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise EnvironmentFault(f"{path}, line {number}: no JSON: {error}") from error


def _of_module(target: str) -> Iterator[tuple[str, Any]]:
    resolved = resolve(target)
    try:
        with guarded(f"the tasks of {target}", Runtime.current().plugin_limit):
            source = resolved() if callable(resolved) else resolved
            if iter(source) is source and not callable(resolved):
                raise TypeError("it can be read only once; expected a list, or a function that returns an iterable")
            rows = list(enumerate(source, 1))
    except (StarPOError, OSError):
        raise
    except FOREIGN as error:
        fault = describe_fault(error, target.partition(":")[0])
        raise EnvironmentFault(f"{target} gives no tasks: {fault}") from error
    yield from ((f"task {number}", row) for number, row in rows)


def _checked(source: str, place: str, row: Any) -> Task:
    if not isinstance(row, dict):
        raise EnvironmentFault(f"{source}, {place}: a {type(row).__name__}, expected an object of fields")
    try:
        return _TASK.validate_python(row, strict=True)
    except ValidationError as error:
        field = error.errors()[0]["loc"][0]
        raise EnvironmentFault(
            f"{source}, {place}: the field {field!r} holds a {type(row.get(field)).__name__}, which is not a JSON "
            "value: keep text, finite numbers, true, false, null, lists and objects of these"
        ) from None
