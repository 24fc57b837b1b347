"""What every stage does around its own work: derive its key, skip what is stored, store what it made.

StageWork(store, stage, settings, inputs, seed, code).key --stored?--> done
                                                          --missing--> work --> put_table / put_folder
                                                          --planning?--> noted, done
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.logging import get_logger
from prefect.tasks import Task, exponential_backoff

from ragen.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from ragen.identity import code_identity, is_reusable
from ragen.store import Store
from ragen.store.keys import stage_key
from schemas.manifest import Stage

Keys = dict[str, str]
"""Artifact kind -> key: what a stage made or found."""


@dataclass(frozen=True)
class PlannedStage:
    """A stage that was planned and not carried out.

    Attributes:
        name: Of the stage.
        key: Of its work.
        kinds: Of its artifacts, sorted.
        work: What it would do.
    """

    name: str
    key: str
    kinds: tuple[str, ...]
    work: "StageWork | None" = field(default=None, compare=False, repr=False)


_NOTED: ContextVar[list[PlannedStage] | None] = ContextVar("noted", default=None)


@contextmanager
def planning() -> Iterator[list[PlannedStage]]:
    """Inside, `task.fn(...)` of a stage derives its keys and does no work; what it would make is noted in the list.

    A key follows from settings, input keys, seed and code, so keys can be known before there is anything under them.
    """
    noted: list[PlannedStage] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


@dataclass
class StageWork:
    """One stage with one set of inputs, and the artifacts that stand for it.

    Attributes:
        store: Where inputs are and outputs go.
        stage: Which stage, at which version.
        settings: Its own configuration, as JSON.
        inputs: Role -> artifact key.
        seed: Its seed, where it has one.
        code: Role -> `module:attribute` of the code that the settings name; a key holds what that code is.
    """

    store: Store
    stage: Stage
    settings: dict[str, Any]
    inputs: dict[str, str]
    seed: int | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    _started: float = field(default_factory=time.perf_counter)

    @cached_property
    def key(self) -> str:
        """Same key, same work."""
        return stage_key(self.stage, self.settings, self.inputs, self.seed, self._identities)

    def is_stored(self, *kinds: str) -> bool:
        """Was all of its work done, whether or not a checkpoint was dropped since?

        While planning: yes, so that nothing is done; but it is noted.
        """
        noted = _NOTED.get()
        if noted is not None:
            noted.append(PlannedStage(self.stage.name, self.key, tuple(sorted(kinds)), self))
            return True
        return all(self.store.was_made(kind, self.key) for kind in kinds)

    def put_table(self, kind: str, table: pa.Table, **extra: Any) -> None:
        """Validate a dataset and store it."""
        self.store.put_table(kind, table, **self._identity(extra))

    def put_folder(self, kind: str, folder: Path, **extra: Any) -> None:
        """Store a folder of files, made by `Store.new_folder`."""
        self.store.take_folder(kind, folder, **self._identity(extra))

    @cached_property
    def _identities(self) -> dict[str, str]:
        identities = {role: code_identity(target) for role, target in self.code.items()}
        for role, identity in identities.items():
            if not is_reusable(identity):
                _warn_of_unknown_code(self.code[role])
        return identities

    def _identity(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        provenance = {"seconds": round(time.perf_counter() - self._started, 3), **extra.get("provenance", {})}
        return {
            "key": self.key,
            "stage": self.stage,
            "settings": self.settings,
            "inputs": self.inputs,
            "seed": self.seed,
            "code": self._identities,
            **extra,
            "provenance": provenance,
        }


@cache
def _warn_of_unknown_code(target: str) -> None:
    get_logger("stages").warning(
        "%s has no source that can be read and belongs to no distribution with a version, so nothing tells whether it "
        "is the same code the next time: what this run makes with it is stored as not reusable by others. Give it a "
        "source file, or install it as a package",
        target,
    )


def is_io_failure(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry when the outside world failed (store, network), never when the data or the settings are wrong."""
    error = state.result(raise_on_failure=False)
    if isinstance(error, ArtifactMissingError | ArtifactDamagedError):
        return False
    return isinstance(error, StoreError | OSError)


stage_task: Callable[..., Any] = partial(
    task,
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=3,
    retry_delay_seconds=exponential_backoff(backoff_factor=1),
    retry_jitter_factor=0.5,
    retry_condition_fn=is_io_failure,
)
"""`prefect.task` for a stage: our own keys decide what is done again, so Prefect's result cache is off."""
