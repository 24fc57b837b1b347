"""Trajectories of other stacks: columns that their files may omit."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import DataError
from starpo.ragen.evidence.imports import read_turns
from starpo.schemas.validate import validate
from tests.examples import example


def test_rows_without_origin_were_sampled(tmp_path):
    file = tmp_path / "turns.parquet"
    turns = example("turns")
    pq.write_table(turns.drop_columns(["origin", "num_candidates", "num_as_good"]), file)
    read = read_turns(file)
    validate(read, "turns")
    assert read.equals(turns)


def test_rows_with_origin_kept_unchanged(tmp_path):
    file = tmp_path / "turns.parquet"
    turns = example("turns")
    index = turns.schema.get_field_index("num_candidates")
    given = turns.set_column(index, "num_candidates", pa.array([3] * turns.num_rows, pa.int32()))
    pq.write_table(given, file)
    assert read_turns(file)["num_candidates"].to_pylist() == [3] * turns.num_rows
    pq.write_table(turns.drop_columns(["origin", "status"]), file)
    with pytest.raises(DataError, match="missing: status"):
        read_turns(file)
