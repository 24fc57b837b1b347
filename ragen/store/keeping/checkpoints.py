"""The checkpoints of a run: which are kept, which were dropped, and which of those can be derived again.

run's records -> key of each checkpoint -> manifests alone -> [RunCheckpoint]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.recipe import how_made, iteration_of, missing_inputs
from starpo.ragen.store.records.runs import StageKeys

State = Literal["kept", "dropped", "missing"]
"""In the store; dropped, with its manifest kept; neither."""


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint of a run.

    Attributes:
        number: Number of iterations before it; 0 is the first.
        key: Its key.
        state: Whether it is kept, dropped or missing.
        obstacle: Why it cannot be derived; None if it is kept or can be derived.
        size_bytes: Size of its files, now or before it was dropped; None if unknown.
        digest: Its content digest, now or before it was dropped; None if unknown.
    """

    number: int
    key: str
    state: State
    obstacle: str | None
    size_bytes: int | None
    digest: str | None


def checkpoint_keys(iterations: Mapping[int, StageKeys]) -> dict[int, str]:
    """Return number -> key of a run's checkpoints, from its records.

    A finished iteration without an update, because the filter kept nothing, passes its checkpoint on.
    """
    keys: dict[int, str] = {}
    newest = None
    for iteration, stages in sorted(iterations.items()):
        if "warm_start" in stages:
            keys[iteration] = newest = stages["warm_start"]["checkpoint"]
        if "update" in stages:
            newest = next(iter(stages["update"].values()))  # all artifacts of an update have one key
        elif newest is None or iteration + 1 not in iterations:
            continue
        keys[iteration + 1] = newest
    return keys


def policies(store: Store, run: str) -> dict[int, str]:
    """Return number -> key of the checkpoints that a run's iterations start from and lead to.

    A replay only makes the later ones; the earlier ones are those of the run that it replays. Empty if that run has
    none.

    Raises:
        StoreError: If there is no such run.
    """
    record, keys = store.runs.get(run), checkpoint_keys(store.runs.iterations(run))
    if record.flow != "replay":
        return keys
    start = int(record.parameters.get("start", 0))
    before = checkpoint_keys(store.runs.iterations(str(record.parameters.get("base"))))
    return {number: key for number, key in before.items() if number <= start} | keys if before else {}


def survey(store: Store, run: str) -> list[RunCheckpoint]:
    """Return all checkpoints of a run, first to newest; manifests are read, weights are not.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has none yet.
        ArtifactDamagedError: If a manifest is not what was written.
    """
    store.runs.get(run)
    keys = checkpoint_keys(store.runs.iterations(run))
    if not keys:
        raise ConfigError(f"run {run} has no checkpoint yet")
    obstacles: dict[str, str | None] = {}
    return [_checkpoint(store, number, key, obstacles) for number, key in keys.items()]


def _checkpoint(store: Store, number: int, key: str, obstacles: dict[str, str | None]) -> RunCheckpoint:
    obstacle = _obstacle(store, key, obstacles)
    state: State = "kept"
    manifest = store.dropped("checkpoint", key)
    if manifest is not None:
        state = "dropped"
    elif store.has("checkpoint", key):
        manifest = store.manifest("checkpoint", key)
    else:
        state = "missing"
    size = None if manifest is None else sum(entry.size_bytes for entry in manifest.files)
    return RunCheckpoint(number, key, state, obstacle, size, None if manifest is None else manifest.content_digest)


def _obstacle(store: Store, key: str, known: dict[str, str | None]) -> str | None:
    """Return why a checkpoint cannot be obtained; None if it can. Results for the whole chain are cached in `known`."""
    passed = []
    while key not in known:
        if store.has("checkpoint", key):
            known[key] = None
            continue
        made = how_made(store, key)
        if made is None or made.stage.name != "update":
            known[key] = f"nothing in the store says how checkpoint {key} was made"
        elif lacking := missing_inputs(store, made):
            known[key] = f"{', '.join(lacking)} of iteration {iteration_of(made)} is missing"
        else:
            passed.append(key)
            key = made.inputs["checkpoint"]
    for later in passed:
        known[later] = known[key]
    return known[key]
