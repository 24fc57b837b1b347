"""Export of a run's trajectories to other formats.

Recorded --choice--> Played --format--> files of a new folder
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.exchange.atif import atif_document
from starpo.ragen.evidence.exchange.choosing import Choice
from starpo.ragen.evidence.exchange.destination import file_name, new_folder
from starpo.ragen.evidence.exchange.hub_folder import HubFolder
from starpo.ragen.evidence.exchange.messages import message_lines
from starpo.ragen.evidence.exchange.played import Played, Recorded
from starpo.ragen.evidence.exchange.preferences import Candidate, Extent, candidate, pairs
from starpo.ragen.evidence.exchange.verl import verl_line

FORMATS = ("messages", "atif", "verl", "preferences", "datasets")


@dataclass
class Export:
    """Statistics of an export.

    Attributes:
        num_trajectories: Number of trajectories read.
        num_chosen: Number of trajectories selected by the choice.
        num_written: Number of lines, documents or pairs written.
        iterations: Iterations from which trajectories were read.
        reused: Iterations skipped because an earlier one has the same rollout.
    """

    num_trajectories: int = 0
    num_chosen: int = 0
    num_written: int = 0
    iterations: set[int] = field(default_factory=set)
    reused: list[int] = field(default_factory=list)


def export_run(recorded: Recorded, form: str, folder: Path, choice: Choice, extent: Extent = "all") -> Export:
    """Write a run's trajectories into a new folder, one file per iteration or, for ATIF, one folder per iteration.

    Args:
        recorded: Trajectories of the run.
        form: One of `FORMATS`.
        folder: Folder to create; removed again if the export fails.
        choice: Selects trajectories.
        extent: Extent of preference pairs: the first response, or all.

    Raises:
        ConfigError: If there is no such format, the folder exists already, or there is nothing to write.
        StoreError: If the run cannot be read.
    """
    if form not in FORMATS:
        raise ConfigError(f"'{form}' is not an export format; expected one of: {', '.join(FORMATS)}")
    done = Export()
    with new_folder(folder):
        chosen = _chosen(recorded, choice, done)
        if form == "datasets":
            with HubFolder(folder, recorded.run) as hub:
                for played in chosen:
                    hub.add(played)
                    done.num_written += 1
        elif form == "atif":
            _write_documents(chosen, recorded, folder, done)
        else:
            with _Lines(folder, "{}.jsonl" if form == "verl" else "iteration-{:05d}.jsonl") as lines:
                for iteration, line in _lines(chosen, form, extent):
                    lines.write(iteration, line)
                    done.num_written += 1
        done.reused = recorded.reused
        if not done.num_written:
            raise ConfigError(
                f"nothing to export: {done.num_chosen} of {done.num_trajectories} trajectories were chosen, and they "
                f"give no {'pair of different returns' if form == 'preferences' else 'line'}"
            )
    return done


def _chosen(recorded: Recorded, choice: Choice, done: Export) -> Iterator[Played]:
    for played in recorded.read():
        done.num_trajectories += 1
        done.iterations.add(played.iteration)
        if choice(played):
            done.num_chosen += 1
            yield played


def _lines(chosen: Iterator[Played], form: str, extent: Extent) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if form == "preferences":
        yield from _pairs(chosen, extent)
        return
    for played in chosen:
        for line in message_lines(played) if form == "messages" else [verl_line(played)]:
            yield played.iteration, line


def _pairs(chosen: Iterator[Played], extent: Extent) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the pairs of each iteration's groups once the iteration has been read."""
    groups: dict[str, list[Candidate]] = {}
    present: int | None = None
    for played in chosen:
        if played.iteration != present:
            yield from ((present or 0, pair) for group in groups.values() for pair in pairs(group))
            groups, present = {}, played.iteration
        found = candidate(played, extent)
        if found is not None:
            groups.setdefault(played.rows[0]["group_id"], []).append(found)
    yield from ((present or 0, pair) for group in groups.values() for pair in pairs(group))


def _write_documents(chosen: Iterator[Played], recorded: Recorded, folder: Path, done: Export) -> None:
    policy = recorded.store.runs.get(recorded.run).stated.get("policy")
    policy = policy if isinstance(policy, dict) else {}
    model = str(policy.get("name_or_path") or policy.get("type") or "unknown")
    for played in chosen:
        place = folder / f"iteration-{played.iteration:05d}"
        place.mkdir(exist_ok=True)
        name = file_name(done.num_written, played.rows[0]["trajectory_id"])
        document = atif_document(played, recorded.run, model)
        (place / name).write_text(json.dumps(document, ensure_ascii=False, allow_nan=False), encoding="utf-8")
        done.num_written += 1


class _Lines:
    """Writer of JSON lines, one file per iteration."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._files = ExitStack()
        self._open: dict[int, TextIO] = {}

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write(self, iteration: int, line: Mapping[str, Any]) -> None:
        """Append a line to the file of an iteration."""
        if iteration not in self._open:
            self._files.close()  # iterations are written in sequence
            file = (self._folder / self._name.format(iteration)).open("w", encoding="utf-8", newline="\n")
            self._open = {iteration: self._files.enter_context(file)}
        self._open[iteration].write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
