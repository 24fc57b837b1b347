"""`ragen checkpoint`: list a run's checkpoints, or export one, which is derived again if it was dropped."""

import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, PublicOption, PushOption, RunArgument, StoreOption, open_store
from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.flows.console.pushing import NOT_OF_THE_POLICY, named_repository, push_folder, pushed_words
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.agents.evaluation.training_states import FILE, training_states, write_states
from starpo.ragen.agents.policy.complete import complete, complete_folder
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError
from starpo.ragen.evidence.exchange.cards import write_model_card
from starpo.ragen.evidence.exchange.hub import HubRepository, Pushed
from starpo.ragen.recompute.derive import Derivation, derive, restore
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import RunCheckpoint, survey
from starpo.ragen.store.keeping.recipe import Recipe, find_recipe, iteration_of
from starpo.schemas.manifest import MANIFEST_NAME

_DIGITS = 12
"""Number of digits of keys and digests in tables; JSON has all."""
_PROOFS = {
    "checkpoint": "proved: its digest is the original's",
    "samples": "proved by its last update: the original's manifest is lost, but its samples are the same",
    "none": "not proved: the learner is not reproducible bit for bit, so the same updates give other weights",
}


def checkpoint(
    run: RunArgument,
    iteration: Annotated[
        int | None, typer.Option(help="The checkpoint after this many iterations; 0 is the first.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this folder. Default: back into the store.")
    ] = None,
    push: PushOption = None,
    public: PublicOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a run's checkpoints, or export one; a dropped one is derived again from stored rollouts and checked."""
    opened = open_store(store)
    if iteration is not None:
        print_checkpoint(opened, run, iteration, output, as_json, named_repository(push, "model", public))
    elif push is not None:
        raise ConfigError("--push needs --iteration N, the checkpoint to push")
    elif output is not None:
        raise ConfigError("--output needs --iteration N, the checkpoint to export")
    elif public:
        raise ConfigError("--public needs --iteration N and --push OWNER/NAME, the checkpoint and its repository")
    else:
        print_checkpoints(opened, run, as_json)


def print_checkpoints(store: Store, run: str, as_json: bool) -> None:
    """Print all checkpoints of a run: which are kept, and whether the others can be derived."""
    found = survey(store, run)
    if as_json:
        print_json([{**vars(checkpoint), "is_available": checkpoint.obstacle is None} for checkpoint in found])
        return
    rows = [
        {
            "iteration": checkpoint.number,
            "state": _state(checkpoint),
            "MB": "" if checkpoint.size_bytes is None else f"{checkpoint.size_bytes / 1e6:.1f}",
            "key": checkpoint.key[:_DIGITS],
            "digest": "unknown" if checkpoint.digest is None else checkpoint.digest[:_DIGITS],
        }
        for checkpoint in found
    ]
    names = ("iteration", "state", "MB", "key", "digest")
    print_table(Console(), rows, title=f"checkpoints of {run}, by iterations before them", names=names, numbers=("MB",))


def print_checkpoint(
    store: Store, run: str, number: int, output: Path | None, as_json: bool, repository: HubRepository | None = None
) -> None:
    """Export one checkpoint as a folder, deriving it if it was dropped, and print where it is.

    Args:
        store: Where the run is stored.
        run: The run's name.
        number: Number of iterations before the checkpoint.
        output: Target folder, new or empty. None to restore a dropped checkpoint to the store.
        as_json: Print JSON.
        repository: Repository to push the policy to; without `output`, from a temporary folder.

    Raises:
        HubError: If the push fails.
        ConfigError: If the run has no such checkpoint, or `output` is not empty.
        ArtifactMissingError: If it is not kept and cannot be derived; the message names what is missing.
        DerivationError: If the derived checkpoint differs from the original.
    """
    checkpoints = {checkpoint.number: checkpoint for checkpoint in survey(store, run)}
    if number not in checkpoints:
        raise ConfigError(f"run {run} has checkpoints {min(checkpoints)} to {max(checkpoints)}; there is no {number}")
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} already exists; give --output a folder that is new or empty")
    with _folder_to_push(output, repository) as folder:
        facts = _exported(store, run, checkpoints[number], checkpoints, folder)
        if repository is not None and folder is not None:
            of_checkpoint = {name: facts[name] for name in ("iteration", "key", "digest")}
            write_model_card(folder, store.runs.get(run), of_checkpoint)
            message = f"Checkpoint {number} of run {run}"
            pushed = push_folder(repository, folder, message, is_kept=output is not None, left_out=NOT_OF_THE_POLICY)
            facts |= {"pushed": asdict(pushed)}
            if output is None:
                del facts["folder"]
    if as_json:
        print_json(facts)
        return
    console = Console()
    for line in _lines(facts):
        say(console, line)


@contextmanager
def _folder_to_push(output: Path | None, repository: HubRepository | None) -> Iterator[Path | None]:
    if output is not None or repository is None:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="ragen-push-") as folder:
        yield Path(folder)


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
    return facts | (_note_training(store, key, output) if output is not None else {})


def _derived(
    store: Store, recipe: Recipe, checkpoints: dict[int, RunCheckpoint], output: Path | None
) -> dict[str, Any]:
    from starpo.ragen.placement import learner_for

    started = time.monotonic()
    start = next((c.number for c in checkpoints.values() if c.key == recipe.start), None)
    numbers, total = itertools.count(1), len(recipe.updates)
    with (
        progress_bar("repeating updates", COUNTED) as show,
        derive(store, recipe, learner_for, lambda _: show(next(numbers), total)) as derived,
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
        "seconds": round(time.monotonic() - started, 1),
        "digest": last.digest,
        "original_digest": last.original_digest,
        "proof": last.proof,
        "folder": folder,
    }


def _put(store: Store, derived: Derivation, output: Path | None) -> str:
    if output is not None:
        _copy(Path(complete(derived.folder, lambda base: complete_folder(store, base))), output)
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
    names = [path.relative_to(folder).as_posix() for path in files]
    try:
        for name in names:
            (output / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, output / name)
    except OSError as error:
        raise ConfigError(
            f"the checkpoint cannot be written to {output}: {error.strerror}; give --output another folder"
        ) from error


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"checkpoint {facts['iteration']} of {facts['run']}"
    if facts["how"] == "kept":
        yield "kept; its files match their recorded digests"
    else:
        at = facts["from_key"] if facts["from_iteration"] is None else f"checkpoint {facts['from_iteration']}"
        updates = counted(len(facts["updates"]), "update")
        yield f"derived from {at}, the nearest one kept, by {updates} in {facts['seconds']} s"
        yield _PROOFS[facts["proof"]]
    yield f"digest  {facts['digest']}"
    if "folder" in facts:
        yield f"folder  {facts['folder']}"
    if facts.get("num_initial_states"):
        yield f"{FILE} in it: the {facts['num_initial_states']} initial states that its training started from"
    if facts.get("training_unknown"):
        yield f"not all initial states of its training are known: {facts['training_unknown']}"
    if "pushed" in facts:
        yield pushed_words(Pushed(**facts["pushed"]))


def _state(checkpoint: RunCheckpoint) -> str:
    if checkpoint.state == "kept":
        return "kept"
    return f"{checkpoint.state}, {checkpoint.obstacle or 'can be derived'}"
