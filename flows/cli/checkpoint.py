"""`starpo checkpoint`: list a run's checkpoints, or export one, which is derived again if it was dropped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.api.checkpoint_export import export_checkpoint
from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, open_store
from starpo.flows.console.documents.recomputing import CheckpointFolder, CheckpointRow
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.agents.policy.initial_states import FILE
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import RunCheckpoint, survey

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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a run's checkpoints, or export one; a dropped one is derived again from stored rollouts and checked."""
    opened = open_store(store)
    if iteration is not None:
        print_checkpoint(opened, run, iteration, output, as_json)
    elif output is not None:
        raise ConfigError("--output needs --iteration N, the checkpoint to export")
    else:
        print_checkpoints(opened, run, as_json)


def print_checkpoints(store: Store, run: str, as_json: bool) -> None:
    """Print all checkpoints of a run: which are kept, and whether the others can be derived."""
    checkpoints = survey(store, run)
    if as_json:
        print_json([CheckpointRow(**vars(each), is_available=each.obstacle is None) for each in checkpoints])
        return
    rows = [
        {
            "iteration": checkpoint.number,
            "state": _state(checkpoint),
            "MB": "" if checkpoint.size_bytes is None else f"{checkpoint.size_bytes / 1e6:.1f}",
            "key": checkpoint.key[:_DIGITS],
            "digest": "unknown" if checkpoint.digest is None else checkpoint.digest[:_DIGITS],
        }
        for checkpoint in checkpoints
    ]
    names = ("iteration", "state", "MB", "key", "digest")
    print_table(Console(), rows, title=f"checkpoints of {run}, by iterations before them", names=names, numbers=("MB",))


def print_checkpoint(store: Store, run: str, number: int, output: Path | None, as_json: bool) -> None:
    """Export one checkpoint as a folder, deriving it if it was dropped, and print where it is.

    Args:
        store: Where the run is stored.
        run: The run's name.
        number: Number of iterations before the checkpoint.
        output: Target folder, new or empty. None to restore a dropped checkpoint to the store.
        as_json: Print JSON.

    Raises:
        ConfigError: If the run has no such checkpoint, or `output` is not empty.
        ArtifactMissingError: If it is not kept and cannot be derived; the message names what is missing.
        DerivationError: If the derived checkpoint differs from the original.
    """
    facts = export_checkpoint(store, run, number, output)
    if as_json:
        print_json(CheckpointFolder(**facts))
        return
    console = Console()
    for line in _lines(facts):
        say(console, line)


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"checkpoint {facts['iteration']} of {facts['run']}"
    if facts["how"] == "kept":
        yield "kept; its files match their recorded digests"
    else:
        at = facts["from_key"] if facts["from_iteration"] is None else f"checkpoint {facts['from_iteration']}"
        updates = counted(len(facts["updates"]), "update")
        yield f"derived from {at}, the nearest one kept, by {updates} in {facts['seconds']:.1f} s"
        yield _PROOFS[facts["proof"]]
    yield f"digest  {facts['digest']}"
    yield f"folder  {facts['folder']}"
    if facts.get("num_initial_states"):
        yield f"{FILE} in it: the {facts['num_initial_states']} initial states that its training started from"
    if facts.get("training_unknown"):
        yield f"not all initial states of its training are known: {facts['training_unknown']}"


def _state(checkpoint: RunCheckpoint) -> str:
    if checkpoint.state == "kept":
        return "kept"
    return f"{checkpoint.state}, {checkpoint.obstacle or 'can be derived'}"
