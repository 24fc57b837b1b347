"""Turns that were not played here but imported: what is known of their source, in the column `info` of `turns`.

An environment's `info` is sorted and has a key before 'imported' (`effective`, `error`), so the beginning tells the two
apart, in earlier stores too. It is no column of its own: every column, null or not, is part of the content digest of
every stored rollout, which `starpo verify` computes again.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

FORMAT = "format_ok"
"""A column that most sources lack: nothing says what they take for malformed."""

_BEGINNING = '{"imported": '


def imported_info(facts: Mapping[str, Any]) -> str:
    """Return `info` of an imported turn.

    Args:
        facts: `format` of the source; `absent`, the columns that it lacks; `messages`, the prompt's, if any; and
            `metadata`, what else it says of the trajectory, in the first turn.
    """
    return json.dumps({"imported": dict(facts)})


def imported_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `imported_info` was given for a row of `turns`; empty for a turn that was played here."""
    facts = json.loads(row["info"]).get("imported") if row["info"].startswith(_BEGINNING) else None
    return facts if isinstance(facts, dict) else {}


def is_imported(info: "pl.Series") -> "pl.Series":
    """Whether each turn was imported, from the column `info`."""
    return info.str.starts_with(_BEGINNING)


def lacks(info: "pl.Series", column: str) -> "pl.Series":
    """Whether each turn was imported from a source that lacks the column.

    Args:
        info: Column `info` of `turns`.
        column: Name of another column.
    """
    imported = is_imported(info)
    if not imported.any():
        return imported
    absent = info.str.json_path_match("$.imported.absent")
    return imported & absent.str.contains(json.dumps(column), literal=True).fill_null(False)


def sql_lacks(column: str) -> str:
    """Return the same as a condition in DuckDB's SQL, over a column `info`."""
    absent = "json_extract_string(info, '$.imported.absent[*]')"
    return f"(starts_with(info, '{_BEGINNING}') and list_contains({absent}, '{column}'))"
