"""Differences of two datasets or folders: the first place and both values; none if they are equal."""

import json

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from starpo.ragen.runs.verify.differences import folder_difference, is_close, is_rounding, table_difference
from starpo.schemas.datasets import DATASETS
from tests.examples import example


@pytest.mark.parametrize("kind", DATASETS)
def test_table_equals_itself_when_chunked(kind):
    table = example(kind)
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert table_difference(table, chunked, DATASETS[kind].key) == ""


@given(kind=st.sampled_from(sorted(DATASETS)), data=st.data())
def test_any_single_changed_value_is_named(kind, data):
    table = example(kind)
    row = data.draw(st.integers(0, table.num_rows - 1), label="row")
    name = data.draw(st.sampled_from(table.column_names), label="column")
    rows = table.to_pylist()
    old = rows[row][name]
    rows[row][name] = new = _other(old, table.schema.field(name).type)
    changed = pa.Table.from_pylist(rows, schema=table.schema)
    difference = table_difference(table, changed, DATASETS[kind].key)
    assert difference.startswith(f"1 of {table.num_rows} rows differ, first row {row} (")
    assert f"{name} is {old!r}"[:100] in difference
    assert f"computed {changed[name][row].as_py()!r}"[:100] in difference
    assert difference.endswith(f"columns that differ: {name}"), new


def _other(value, type_):
    if pa.types.is_list(type_):
        return [_other(value[0] if value else None, type_.value_type), *value[1:]]
    if pa.types.is_boolean(type_):
        return not value
    if pa.types.is_string(type_):
        return f"{value}!"
    return (value or 0) + 1


def test_table_difference_is_exact_for_floats():
    def table(value: float) -> pa.Table:
        return pa.table({"k": [1, 2], "v": [0.5, value]})

    assert table_difference(table(float("nan")), table(float("nan")), ("k",)) == ""
    assert "-0.0, computed 0.0" in table_difference(table(-0.0), table(0.0), ("k",))
    assert table_difference(table(0.1), table(0.1 + 2**-56), ("k",))
    negative, positive = (pa.table({"k": [1], "v": [[zero, float("nan")]]}) for zero in (-0.0, 0.0))
    assert table_difference(negative, negative, ("k",)) == ""
    assert table_difference(negative, positive, ("k",))


@pytest.mark.parametrize(
    ("stored", "computed", "is_same"),
    [
        (0.5, 0.5 + 1e-12, True),
        (0.5, 0.5 + 1e-8, False),
        (0.0, 1e-12, True),
        (float("nan"), float("nan"), True),
        (float("nan"), 0.5, False),
        (0.5, None, False),
        ([0.5, 1.0], [0.5 + 1e-12, 1.0], True),
        ([0.5, 1.0], [0.5, 1.1], False),
        ([0.5], [0.5, 1.0], False),
        ("a", "b", False),
    ],
)
def test_rounding_is_limited_to_last_digits(stored, computed, is_same):
    assert is_close(stored, computed) == is_same
    if stored is not None and computed is not None:
        old, new = pa.table({"v": [stored]}), pa.table({"v": [computed]})
        assert is_rounding(old, new) == is_same
        assert not is_rounding(old, pa.concat_tables([new, new]))
        assert not is_rounding(old, new.rename_columns(["w"]))


def test_rows_that_are_missing_are_counted():
    metrics = example("metrics")
    difference = table_difference(metrics, metrics.slice(0, 1), DATASETS["metrics"].key)
    assert difference == "2 rows, computed 1"


def test_untrusted_text_is_escaped_and_cut():
    stored, computed = pa.table({"k": [1], "t": ["\x1b[2J" + "a" * 500]}), pa.table({"k": [1], "t": [""]})
    difference = table_difference(stored, computed, ("k",))
    assert difference.isprintable()
    assert len(difference) < 400


@pytest.fixture
def folders(tmp_path):
    for name in ("stored", "computed"):
        (tmp_path / name / "empty").mkdir(parents=True)
        save_file({"a": torch.zeros(4), "b": torch.ones(2, 3)}, tmp_path / name / "model.safetensors")
        (tmp_path / name / "config.json").write_text(json.dumps({"layers": 1}))
        (tmp_path / name / "manifest.json").write_text(name)
    return tmp_path / "stored", tmp_path / "computed"


def test_identical_folders_do_not_differ(folders):
    assert folder_difference(*folders) == ""


def test_differing_weights_are_counted_and_measured(folders):
    save_file({"a": torch.zeros(4), "b": torch.tensor([[1.0, 1, 1], [1, 1, 1.5]])}, folders[1] / "model.safetensors")
    difference = folder_difference(*folders)
    assert "1 of 2 tensors, first b: 1 of 6 values, by at most 0.5" in difference
    for folder, first in zip(folders, (0.0, -0.0), strict=True):
        save_file({"a": torch.tensor([first, float("nan")]).bfloat16()}, folder / "model.safetensors")
    assert "1 of 1 tensors, first a: 1 of 2 values, by at most 0" in folder_difference(*folders)


def test_shape_name_and_file_differences_named(folders):
    save_file({"a": torch.zeros(4), "b": torch.ones(2)}, folders[1] / "model.safetensors")
    assert "b is float32 [2, 3], computed float32 [2]" in folder_difference(*folders)
    save_file({"a": torch.zeros(4).bfloat16(), "b": torch.ones(2, 3)}, folders[1] / "model.safetensors")
    assert "a is float32 [4], computed bfloat16 [4]" in folder_difference(*folders)
    save_file({"a": torch.zeros(4)}, folders[1] / "model.safetensors")
    assert "the tensor 'b' is in only one of the two" in folder_difference(*folders)
    (folders[0] / "extra.txt").write_text("x")
    assert "the file 'extra.txt' is in the stored folder only" in folder_difference(*folders)
