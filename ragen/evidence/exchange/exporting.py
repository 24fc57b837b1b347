"""Export of a run's trajectories to other formats.

Recorded --choice--> Played --format--> files of a new folder
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.exchange.atif import atif_document
from starpo.ragen.evidence.exchange.choosing import Choice
from starpo.ragen.evidence.exchange.destination import file_name, new_folder
from starpo.ragen.evidence.exchange.image_parts import image_path
from starpo.ragen.evidence.exchange.messages import message_lines
from starpo.ragen.evidence.exchange.played import Played, Recorded

FORMATS = ("messages", "atif")


@dataclass
class Export:
    """Statistics of an export.

    Attributes:
        num_trajectories: Number of trajectories read.
        num_chosen: Number of trajectories selected by the choice.
        num_written: Number of lines or documents written.
        iterations: Iterations from which trajectories were read.
        reused: Iterations skipped because an earlier one has the same rollout.
    """

    num_trajectories: int = 0
    num_chosen: int = 0
    num_written: int = 0
    iterations: set[int] = field(default_factory=set)
    reused: list[int] = field(default_factory=list)


def export_run(recorded: Recorded, form: str, folder: Path, choice: Choice) -> Export:
    """Write a run's trajectories into a new folder, one file per iteration or, for ATIF, one folder per iteration.

    Args:
        recorded: Trajectories of the run.
        form: One of `FORMATS`.
        folder: Folder to create; it is there once it is complete.
        choice: Selects trajectories.

    Raises:
        ConfigError: If there is no such format, the folder exists already, or there is nothing to write.
        StoreError: If the run cannot be read.
    """
    if form not in FORMATS:
        raise ConfigError(f"'{form}' is not an export format; expected one of: {', '.join(FORMATS)}")
    done = Export()
    with new_folder(folder) as unfinished:
        chosen = _chosen(recorded, choice, done)
        if form == "atif":
            _write_documents(chosen, recorded, unfinished, done)
        else:
            _write_lines(chosen, unfinished, done)
        done.reused = recorded.reused
        if not done.num_written:
            raise ConfigError(
                f"nothing to export: {done.num_chosen} of {done.num_trajectories} trajectories were chosen, and they "
                "give no line"
            )
    return done


def _chosen(recorded: Recorded, choice: Choice, done: Export) -> Iterator[Played]:
    for played in recorded.read():
        done.num_trajectories += 1
        done.iterations.add(played.iteration)
        if choice(played):
            done.num_chosen += 1
            yield played


def _write_lines(chosen: Iterator[Played], folder: Path, done: Export) -> None:
    lines = ((played.iteration, line) for played in chosen for line in message_lines(played))
    for iteration, group in groupby(lines, key=itemgetter(0)):
        with (folder / f"iteration-{iteration:05d}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
            for _, line in group:
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
                done.num_written += 1


def _write_documents(chosen: Iterator[Played], recorded: Recorded, folder: Path, done: Export) -> None:
    model = _model_name(recorded.store.runs.get(recorded.run).stated)
    for played in chosen:
        place = folder / f"iteration-{played.iteration:05d}"
        place.mkdir(exist_ok=True)
        name = file_name(done.num_written, played.rows[0]["trajectory_id"])
        document = atif_document(played, recorded.run, model)
        (place / name).write_text(json.dumps(document, ensure_ascii=False, allow_nan=False), encoding="utf-8")
        _write_images(played, place)
        done.num_written += 1


def _model_name(settings: Mapping[str, Any]) -> str:
    """Name who answered, by the settings of a run: a server's model, a player without a model, or the policy."""
    policy, rollout = (_table(settings.get(name)) for name in ("policy", "rollout"))
    engine = _table(rollout.get(str(rollout.get("engine"))))
    names = (engine.get("model"), engine.get("player"), policy.get("name_or_path"), policy.get("type"))
    return next((str(name) for name in names if name), "unknown")


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _write_images(played: Played, place: Path) -> None:
    """Write the images of a trajectory beside its document; an image that several show is one file."""
    for image in {one.image for shown in played.places for one in shown}:
        file = place / image_path(image.digest)
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(base64.b64decode(image.to_png()))
