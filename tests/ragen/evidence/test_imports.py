"""Trajectories of other stacks: columns that their files may omit."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import DataError
from starpo.ragen.evidence.imports import read_turns
from starpo.schemas.validate import validate
from tests.examples import example


def write(table, file):
    """Write a file in the format of its suffix."""
    if file.suffix == ".parquet":
        pq.write_table(table, file)
    else:
        file.write_text("\n".join(map(json.dumps, table.to_pylist())))


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_rows_without_origin_were_sampled(tmp_path, suffix):
    file = tmp_path / f"turns.{suffix}"
    turns = example("turns")
    write(turns.drop_columns(["origin", "num_candidates", "num_as_good"]), file)
    read = read_turns(file)
    validate(read, "turns")
    assert read.equals(turns)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_env_column_accepts_view_name(tmp_path, suffix):
    turns = example("turns")
    names = ["environment" if name == "env" else name for name in turns.column_names]
    file = tmp_path / f"turns.{suffix}"
    write(turns.rename_columns(names), file)
    assert read_turns(file).equals(turns)
    pq.write_table(turns.append_column("environment", turns["env"]), tmp_path / "both.parquet")
    with pytest.raises(DataError, match="unknown: environment"):
        read_turns(tmp_path / "both.parquet")


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
