"""A run's checkpoint as a folder: the stored one, or, if it was dropped, derived again and checked.

run, number -> export_checkpoint -> folder, and facts on how it was obtained
"""

import itertools
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.ragen.agents.policy.agent_settings import write_agent
from starpo.ragen.agents.policy.initial_states import write_states
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError
from starpo.ragen.core.outputs import is_vacant, whole_folder
from starpo.ragen.runs.derive import Derivation, restore
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.runs.training_states import training_states
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import RunCheckpoint, checkpoint_keys, survey
from starpo.ragen.store.keeping.recipe import Recipe, find_recipe, iteration_of
from starpo.schemas.manifest import MANIFEST_NAME


def export_checkpoint(store: Store, run: str, number: int, output: Path | None = None) -> dict[str, Any]:
    """Obtain one of a run's checkpoints as a folder in Hugging Face's layout.

    Args:
        store: Where the run is stored.
        run: The run's name.
        number: Number of iterations before the checkpoint.
        output: Target folder, new or empty. None for the one in the store, to which a dropped checkpoint is restored.

    Returns:
        Facts as JSON: among them its `key`, its content `digest`, `how` it was obtained ('kept' or 'derived'), and its
        `folder`.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If the run has no such checkpoint, or `output` is not empty.
        ArtifactMissingError: If it is not kept and cannot be derived; the message names what is missing.
        DerivationError: If the derived checkpoint differs from the original.
    """
    checkpoints = {checkpoint.number: checkpoint for checkpoint in survey(store, run)}
    if number not in checkpoints:
        raise ConfigError(f"run {run} has checkpoints {min(checkpoints)} to {max(checkpoints)}; there is no {number}")
    if output is None:
        return _exported(store, run, checkpoints[number], checkpoints, None)
    if not is_vacant(output):
        raise ConfigError(f"{output} already exists; give --output a folder that is new or empty")
    with whole_folder(output) as unfinished:
        facts = _exported(store, run, checkpoints[number], checkpoints, unfinished)
    return facts | {"folder": str(output.absolute())}


def _exported(
    store: Store,
    run: str,
    checkpoint: RunCheckpoint,
    checkpoints: dict[int, RunCheckpoint],
    output: Path | None,
) -> dict[str, Any]:
    key = checkpoint.key
    facts: dict[str, Any] = {"run": run, "iteration": checkpoint.number, "key": key}
    recipe = find_recipe(store, key)
    if recipe.updates:
        facts |= _derived(store, recipe, checkpoints, output)
    else:
        folder = Path(complete_folder(store, key))
        if output is not None:
            _copy(folder, output)
        facts |= {"how": "kept", "digest": checkpoint.digest, "folder": str((output or folder).absolute())}
    if output is None:
        return facts
    from starpo.ragen.agents.policy.save import make_portable

    make_portable(output)
    write_agent(output, store.runs.get(run).config)
    return facts | _note_training(store, key, output)


def _derived(
    store: Store, recipe: Recipe, checkpoints: dict[int, RunCheckpoint], output: Path | None
) -> dict[str, Any]:
    started = time.monotonic()
    start = next((c.number for c in checkpoints.values() if c.key == recipe.start), None)
    numbers, total = itertools.count(1), len(recipe.updates)
    with (
        progress_bar("repeating updates", COUNTED) as show,
        ModelPlacement() as placement,
        placement.learner.derive(
            store, recipe, lambda _: show(next(numbers), total), must_be_proved=output is None
        ) as derived,
    ):
        folder = _put(store, derived, output)
        last = derived.steps[-1]
    return {
        "how": "derived",
        "from_iteration": start,
        "from_key": recipe.start,
        "updates": [
            {"iteration": iteration_of(step.made), "digest": step.digest, "proof": step.proof} for step in derived.steps
        ],
        "seconds": time.monotonic() - started,
        "digest": last.digest,
        "original_digest": last.original_digest,
        "proof": last.proof,
        "folder": folder,
    }


def _put(store: Store, derived: Derivation, output: Path | None) -> str:
    if output is not None:
        with TemporaryDirectory(prefix="ragen-checkpoint-") as folder:  # it may link to the weights of its base
            derived.write(store, folder)
            _copy(Path(folder), output)
        return str(output.absolute())
    restore(store, derived)
    return complete_folder(store, derived.recipe.key)


def _note_training(store: Store, key: str, output: Path) -> dict[str, Any]:
    """Write the initial states of its training into an exported policy's folder, so that panels can exclude them."""
    try:
        states = training_states(store, key)
    except ArtifactDamagedError as error:
        return {"num_initial_states": 0, "training_unknown": f"its lineage cannot be read: {error}"}
    if states.digests:
        write_states(output, states.digests)
    lost = f"{states.num_unknown} of the stages of its training (rollouts, a warm start) are no longer in the store"
    return {"num_initial_states": len(states.digests), "training_unknown": lost if states.num_unknown else None}


def _copy(folder: Path, output: Path) -> None:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_NAME)
    for name in [path.relative_to(folder).as_posix() for path in files]:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, output / name)


def find_checkpoint(store: Store, run: str, iteration: int | None) -> tuple[int, str]:
    """Return number and key of one of a run's checkpoints: the one after this many iterations, or the last one.

    Raises:
        ConfigError: If the run has no such checkpoint.
    """
    checkpoints = checkpoint_keys(store.runs.iterations(run))
    if not checkpoints:
        raise ConfigError(f"run {run} has no checkpoint yet")
    number = max(checkpoints) if iteration is None else iteration
    if number not in checkpoints:
        raise ConfigError(f"run {run} has no checkpoint {number}; it has {min(checkpoints)} to {max(checkpoints)}")
    return number, checkpoints[number]
