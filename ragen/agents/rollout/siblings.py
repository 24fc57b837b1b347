"""Candidates of a search, passed from the player to the stage: a list of candidates for each turn.

search -> column of its `turns` -> `play_shards` -> take_siblings -> datasets `turns` and `siblings`

They are attached to the rows because these may come from another process; datasets are stored without the column.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.schemas.datasets import SIBLINGS

_NAME = "siblings"
_OF_THE_TURN = ("trajectory_id", "turn")
_TYPE = pa.list_(pa.struct([field for field in SIBLINGS.schema if field.name not in _OF_THE_TURN]))
SIBLINGS_COLUMN = pa.field(_NAME, _TYPE)
"""The column of each turn's siblings, which comes last."""


def with_siblings(turns: pa.Table, siblings: Sequence[Sequence[dict[str, Any]]] | None = None) -> pa.Table:
    """Attach each turn's candidates; None for turns without search, which have none."""
    siblings = [[]] * turns.num_rows if siblings is None else siblings
    return turns.append_column(SIBLINGS_COLUMN, pa.array(siblings, _TYPE))


def take_siblings(turns: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split into `turns`, with their images if there are some, and dataset `siblings`, in the order of the turns."""
    lists = turns[_NAME].combine_chunks()
    rows = np.repeat(np.arange(turns.num_rows), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    turn_columns = turns.select(_OF_THE_TURN).take(pa.array(rows, pa.int64()))
    structs = pa.Table.from_struct_array(lists.flatten())
    columns = {
        **{name: turn_columns[name] for name in _OF_THE_TURN},
        **{name: structs[name] for name in structs.column_names},
    }
    siblings = pa.Table.from_arrays([columns[name] for name in SIBLINGS.schema.names], schema=SIBLINGS.schema)
    return turns.drop_columns([_NAME]), siblings
