"""`Groups`: the rows of stored datasets by group, of which one group at a time becomes Python objects.

turns, episode_turns, rewards, samples, trained_tokens -> Groups -> rows, trajectories
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.evidence.reading import Place, Reader

Row = dict[str, Any]


@dataclass(frozen=True)
class OneGroup:
    """The one group whose trajectories are read whole: by its name, or that of a trajectory; by neither, or where there
    is none of the name, the first."""

    group: str | None = None
    trajectory: str | None = None


class Groups:
    """The rows of a dataset by group: columns in Arrow, of which one group at a time becomes Python objects."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        self._table = pa.concat_tables(tables).combine_chunks()
        self._rows: dict[str, list[int]] = {}
        for number, group in enumerate(self._table["group_id"].to_pylist()):
            self._rows.setdefault(group, []).append(number)

    @classmethod
    def read(
        cls, reader: Reader, places: Iterable[Place], kind: str, columns: Sequence[str] | None = None
    ) -> "Groups | None":
        """Read the datasets of one kind among some places; an iteration of several attempts has several.

        Returns:
            None if there are none that can be read.
        """
        tables = [reader.table(place, columns) for place in places if place.kind == kind]
        readable = [table for table in tables if table is not None]
        return cls(readable) if readable else None

    @property
    def names(self) -> list[str]:
        """Names of the groups, in order of first appearance."""
        return list(self._rows)

    @property
    def num_trajectories(self) -> int:
        """Number of trajectories."""
        return int(pc.count_distinct(self._table["trajectory_id"]).as_py())

    def select(self, columns: Iterable[str]) -> "Groups":
        """Return the same rows with these columns alone, beside the group."""
        other = object.__new__(Groups)
        other._table, other._rows = self._table.select([*columns]), self._rows
        return other

    def named(self, one: OneGroup) -> str | None:
        """Return the name of the group; None if there is none."""
        if one.group in self._rows or one.trajectory is None:
            return one.group if one.group in self._rows else None
        row = pc.index(self._table["trajectory_id"], one.trajectory).as_py()
        return None if row < 0 else str(self._table["group_id"][row])

    def rows(self, group: str) -> list[Row]:
        """Return the rows of a group, in their order; they may lie anywhere in the dataset."""
        numbers = self._rows.get(group, [])
        if not numbers or numbers[-1] - numbers[0] + 1 == len(numbers):
            rows: list[Row] = self._table.slice(numbers[0] if numbers else 0, len(numbers)).to_pylist()
            return rows
        taken: list[Row] = self._table.take(pa.array(numbers)).to_pylist()
        return taken

    def by_turn(self, group: str) -> dict[tuple[str, int], Row]:
        """Return the rows of a group by trajectory and turn."""
        return {(row["trajectory_id"], row["turn"]): row for row in self.rows(group)}

    def trajectories(self, group: str) -> list[list[Row]]:
        """Return the trajectories of a group, each as its turns in order."""
        by_id: dict[str, list[Row]] = {}
        for row in self.rows(group):
            by_id.setdefault(row["trajectory_id"], []).append(row)
        return [sorted(rows, key=lambda row: row["turn"]) for rows in by_id.values()]
