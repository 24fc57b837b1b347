"""Import of traces of another system into a spool: valid traces are accepted, others set aside with a reason.

file or folder --format--> pieces, a trace each -> rows -> Spool          faults -> SetAside
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import ConfigError, DataError
from starpo.ragen.evidence.exchange.atif import read_atif, rows_digest
from starpo.ragen.evidence.exchange.inspect_log import inspect_samples
from starpo.ragen.evidence.exchange.inspect_sample import read_inspect
from starpo.ragen.evidence.exchange.lines import Piece, documents, json_lines
from starpo.ragen.evidence.exchange.messages import read_messages
from starpo.ragen.evidence.exchange.setting_aside import SetAside
from starpo.ragen.evidence.exchange.spool import Spool
from starpo.ragen.evidence.exchange.trace import Row, Trace, TraceFault, rows_of
from starpo.ragen.evidence.exchange.verifiers import episode_traces, read_verifiers

READERS: dict[str, Callable[[Any], Trace]] = {
    "atif": read_atif,
    "verifiers": read_verifiers,
    "messages": read_messages,
    "inspect": read_inspect,
}
"""Format -> function that reads the trace of a piece of a file."""

_OF_ITERATION = re.compile(r"iteration-[0-9]{5,}")
_OF_GROUPS = ("group_id", "member", "env_seed", "initial_state_digest")


@dataclass(frozen=True)
class Taken:
    """Traces imported from a file.

    Attributes:
        num_traces: Number of traces.
        is_paid: Whether they have rewards.
        notes: What the source says of the file, such as which of several scores is the reward.
    """

    num_traces: int
    is_paid: bool
    notes: tuple[str, ...] = ()


def iterations_of(path: Path, form: str) -> list[Path]:
    """What is imported as an iteration each: the folders of an ATIF export of ours, in order; else the path itself."""
    if form != "atif" or not path.is_dir():
        return [path]
    inside = [each for each in path.glob("*") if each.is_dir() or each.suffix == ".json"]
    if not inside or any(each.is_symlink() or not _OF_ITERATION.fullmatch(each.name) for each in inside):
        return [path]
    return sorted(inside, key=lambda folder: int(folder.name.rpartition("-")[2]))


def take_in(path: Path, form: str, spool: Spool, aside: SetAside, *, should_keep_groups: bool = True) -> Taken:
    """Read the traces of one iteration. Memory is independent of their number, except for about 300 bytes of ids each.

    Args:
        path: A file; for ATIF also a folder with one document per file.
        form: One of `READERS`.
        spool: Receives the rows, and is finished afterwards.
        aside: Receives broken traces, traces that neither failed nor have a reward if others have
            one, and those of incomplete groups.
        should_keep_groups: Whether to keep groups. If False, every trajectory is a group of its own, and none is set
            aside because of its group.

    Raises:
        ConfigError: If there is no such format.
        DataError: If the file cannot be read at all.
    """
    if form not in READERS:
        raise ConfigError(f"'{form}' is not an import format; expected one of: turns, {', '.join(READERS)}")
    paid: dict[str, bool] = {}
    failed: set[str] = set()
    notes: dict[str, None] = {}
    for piece in _pieces(path, form):
        if piece.fault:
            aside.add(piece.place, piece.fault, piece.beginning)
            continue
        try:
            trace = _trace(path, piece, form)
            rows = _rows(trace if should_keep_groups else _alone(trace), piece.place, form)
            spool.add(rows, [turn.images for turn in trace.turns])
            paid[rows[0]["trajectory_id"]] = trace.reward is not None
            failed |= {rows[0]["trajectory_id"]} if trace.has_failed else set()
            notes |= {trace.note: None} if trace.note else {}
        except TraceFault as fault:
            aside.add(piece.place, str(fault), piece.beginning)
    spool.finish()
    is_paid = any(paid.values())
    unpaid = [name for name, has_reward in paid.items() if not has_reward and name not in failed] if is_paid else []
    _leave_out(spool, aside, unpaid, "has no reward, and others have")
    usual, ragged = spool.ragged()
    reason = f"is of a group of another size than {usual}; groups='alone' takes each trajectory by itself"
    _leave_out(spool, aside, ragged, reason)
    return Taken(spool.num_traces, is_paid, tuple(f"{path.name}: {note}" for note in notes))


def _trace(path: Path, piece: Piece, form: str) -> Trace:
    if form == "atif":  # its images are files beside it
        return read_atif(piece.value, (path.parent / piece.place).parent)
    return READERS[form](piece.value)


def _rows(trace: Trace, place: str, form: str) -> list[Row]:
    rows = rows_of(trace, place, form)
    try:
        is_changed = (
            trace.digest is not None and rows_digest(rows, [turn.images for turn in trace.turns]) != trace.digest
        )
    except TypeError as error:  # a number without a JSON form, such as the infinity of 1e999
        raise TraceFault(f"cannot be compared with what was exported: {error}") from error
    if is_changed:
        raise TraceFault("was changed since it was exported; take extra.ragen.digest out where that is meant")
    return rows


def _leave_out(spool: Spool, aside: SetAside, names: list[str], reason: str) -> None:
    spool.leave_out(names)
    for name in names:
        aside.add(name, reason, "")


def _alone(trace: Trace) -> Trace:
    columns = {name: value for name, value in trace.columns.items() if name not in _OF_GROUPS}
    return replace(trace, group=None, member=None, columns=columns, digest=None)


def _pieces(path: Path, form: str) -> Iterator[Piece]:
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    if path.is_dir():
        if form != "atif":
            raise DataError(f"{path}: is a folder; traces of format '{form}' are read from a file")
        return documents(path)
    if form == "inspect":
        return inspect_samples(path)
    pieces = documents(path) if path.suffix == ".json" else json_lines(path)
    return episode_traces(pieces) if form == "verifiers" else pieces
