"""Imported turns and what their sources lack, told from `info` in Python, polars and SQL alike."""

import duckdb
import polars as pl
import pytest

from starpo.schemas.imported import imported_facts, imported_info, is_imported, lacks, sql_lacks

FACTS = {"format": "atif", "absent": ["format_ok", "reward"]}
PLAYED = ['{"effective": true}', "{}", '{"error": "KeyError", "imported": {"absent": ["format_ok"]}}']


@pytest.mark.parametrize("column", ["format_ok", "reward", "success", "format"])
def test_what_a_source_lacks(column: str) -> None:
    info = pl.Series([imported_info(FACTS), imported_info({"format": "x", "absent": []}), *PLAYED])
    expected = [column in FACTS["absent"], False, False, False, False]
    assert lacks(info, column).to_list() == expected
    frame = pl.DataFrame({"info": info})
    rows = duckdb.sql(f"select {sql_lacks(column)} from frame").fetchall()
    assert len(frame) == 5
    assert [row for (row,) in rows] == expected


def test_played_turns_are_not_imported() -> None:
    assert imported_facts({"info": imported_info(FACTS)}) == FACTS
    assert not any(imported_facts({"info": info}) for info in PLAYED)
    assert is_imported(pl.Series([imported_info(FACTS), *PLAYED])).to_list() == [True, False, False, False]
