"""Temporary storage of the rows of many traces on disk, so that memory does not grow with their number.

    rows and images of a trace -> Spool.add -> Arrow files -> Spool.batches, turn_images, images -> store

Facts that are only known after all traces have been added are applied in a second pass: which groups are complete, how
many actions the longest trajectory of a group took, and whether all traces have a reward.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.core.errors import first_line
from starpo.ragen.evidence.exchange.trace import Row, TraceFault
from starpo.schemas.datasets import IMAGES, TURN_IMAGES, TURNS
from starpo.schemas.models import has_nulls

_ROWS_AT_ONCE = 4_096
_SAME_IN_GROUP = ("env", "env_seed", "initial_state_digest", "action_cost")


@dataclass
class _Group:
    same: dict[str, object]
    members: list[int] = field(default_factory=list)
    budget: int = 0


class _File:
    """Record batches in an Arrow file, compressed: images are stored without compression of their own."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self._file = file
        self._sink = pa.OSFile(str(file), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        if not self._sink.closed:
            self._writer.close()
            self._sink.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self._file)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


class Spool:
    """Rows of `turns`, and images, added trace by trace and read batch by batch. Use as a context manager."""

    def __init__(self, file: Path) -> None:
        """Create the file that holds the rows, and those of the images beside it."""
        self._turns = _File(file, TURNS.schema)
        self._places = _File(file.with_suffix(".places"), TURN_IMAGES.schema)
        self._images = _File(file.with_suffix(".images"), IMAGES.schema)
        self._tokens_of: dict[str, int] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._num_waiting = 0
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        self._member_of: dict[str, int] = {}

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close()

    @property
    def num_traces(self) -> int:
        """Number of traces added and not left out."""
        return len(self._group_of)

    @property
    def shows_images(self) -> bool:
        """Whether prompts show images."""
        return bool(self._tokens_of)

    def add(self, rows: Sequence[Row], images: Sequence[Sequence[PlacedImage]] = ()) -> None:
        """Add the rows of a trace, and the images of the prompt of each.

        Raises:
            TraceFault: If they do not fit the columns, the id is not unique, the group has another task, or an image
                has another number of tokens than in a trace before it.
        """
        try:
            batch = pa.RecordBatch.from_pylist(list(rows), schema=TURNS.schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TraceFault(f"does not fit the columns of 'turns': {first_line(error)[:120]}") from error
        if has_nulls(batch, "turns"):
            raise TraceFault("lacks a value in a column of 'turns' that has no nulls")
        first = {name: batch[name][0].as_py() for name in ("trajectory_id", "group_id", "member")}
        same = {name: batch[name][0].as_py() for name in _SAME_IN_GROUP}
        name, group_id = first["trajectory_id"], first["group_id"]
        if name in self._group_of:
            raise TraceFault("has the id of a trace before it")
        group = self._groups.setdefault(group_id, _Group(same))
        if group.same != same:
            raise TraceFault(f"differs from the first of its group in {' or '.join(_SAME_IN_GROUP)}")
        shown = [(turn, one) for turn, placed in enumerate(images) for one in placed]
        if any(self._tokens_of.get(one.image.digest, one.num_tokens) != one.num_tokens for _, one in shown):
            raise TraceFault("shows an image that has another number of tokens in a trace before it")
        self._add_images(name, shown)
        member = len(group.members) if first["member"] < 0 else first["member"]
        group.members.append(member)
        left = batch["actions_left"][-1].as_py()
        if left < 0:
            group.budget = max(group.budget, len(batch["executed_actions"][-1]) - 1 - left)
        self._group_of[name], self._member_of[name] = group_id, member
        self._waiting.append(batch)
        self._num_waiting += len(rows)
        if self._num_waiting >= _ROWS_AT_ONCE:
            self._flush()

    def _add_images(self, name: str, shown: Sequence[tuple[int, PlacedImage]]) -> None:
        places = []
        for turn, one in shown:
            image, digest = one.image, one.image.digest
            place = {"position": one.position, "num_tokens": one.num_tokens, "image": digest}
            places.append({"trajectory_id": name, "turn": turn, **place})
            if digest not in self._tokens_of:
                self._tokens_of[digest] = one.num_tokens
                pixels = {"height": image.height, "width": image.width, "png": image.to_png(is_compressed=False)}
                self._images.write(pa.RecordBatch.from_pylist([{"digest": digest, **pixels}], schema=IMAGES.schema))
        if places:
            self._places.write(pa.RecordBatch.from_pylist(places, schema=TURN_IMAGES.schema))

    def finish(self) -> None:
        """Close the file for writing; no more traces can be added."""
        self._flush()
        self._close()

    def leave_out(self, names: Sequence[str]) -> None:
        """Exclude the rows of these traces from `batches`."""
        for name in names:
            group = self._groups[self._group_of.pop(name)]
            group.members.remove(self._member_of.pop(name))

    def ragged(self) -> tuple[int, list[str]]:
        """Return the most common group size, by number of traces, and the traces of groups of other sizes."""
        sizes = Counter(len(group.members) for group in self._groups.values() if group.members)
        usual = max(sizes, key=lambda size: (sizes[size] * size, size)) if sizes else 0
        other = {group_id for group_id, group in self._groups.items() if len(group.members) != usual}
        return usual, [name for name, group_id in self._group_of.items() if group_id in other]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all traces that were not left out; can be called several times."""
        members = self._members()
        names = pa.array(list(members), pa.string())
        numbers = pa.array(list(members.values()), pa.int32())
        budgets = pa.array([self._groups[self._group_of[name]].budget for name in members], pa.int32())
        for batch in self._turns.batches():
            place = pc.index_in(batch["trajectory_id"], value_set=names)
            is_wanted = pc.is_valid(place)
            batch, place = batch.filter(is_wanted), place.filter(is_wanted)
            left = batch["actions_left"].to_numpy()
            counted = pa.array(np.where(left >= 0, left, left + 1 + budgets.take(place).to_numpy()), pa.int32())
            batch = _with(_with(batch, "member", numbers.take(place)), "actions_left", counted)
            if batch.num_rows:
                yield batch

    def turn_images(self) -> Iterator[pa.RecordBatch]:
        """Yield where prompts of the same traces show images; can be called several times."""
        names = pa.array(list(self._group_of), pa.string())
        for batch in self._places.batches():
            yield batch.filter(pc.is_in(batch["trajectory_id"], value_set=names))

    def images(self) -> Iterator[pa.RecordBatch]:
        """Yield these images, each once."""
        shown = pa.array({digest for batch in self.turn_images() for digest in batch["image"].to_pylist()}, pa.string())
        for batch in self._images.batches():
            yield batch.filter(pc.is_in(batch["digest"], value_set=shown))

    def _members(self) -> dict[str, int]:
        """Map traces to indices in their groups: those of the source if they are 0, 1, 2, ..., else by appearance."""
        numbered = {
            group_id
            for group_id, group in self._groups.items()
            if sorted(group.members) == list(range(len(group.members)))
        }
        counts: Counter[str] = Counter()
        members = {}
        for name, group_id in self._group_of.items():
            members[name] = self._member_of[name] if group_id in numbered else counts[group_id]
            counts[group_id] += 1
        return members

    def _close(self) -> None:
        for file in (self._turns, self._places, self._images):
            file.close()

    def _flush(self) -> None:
        if self._waiting:
            self._turns.write(pa.concat_batches(self._waiting))
        self._waiting, self._num_waiting = [], 0


def _with(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return pa.RecordBatch.from_arrays(
        [values if number == place else column for number, column in enumerate(batch.columns)], schema=batch.schema
    )
