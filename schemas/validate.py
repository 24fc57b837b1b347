"""Validation of a dataset, in one call or batch by batch in bounded memory; one readable error.

A stream is checked in one pass: columns and row rules per batch, across rules at the end, on the columns that they
name. These are kept for all rows, texts as numbers (about 40 bytes per row of `turns`), so rows may come in any order.

    rows -> validate -> store      a violation -> ContractViolation(message, failure_cases)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pandera.polars import DataFrameSchema

from starpo.schemas.datasets import DATASETS, Dataset
from starpo.schemas.models import across_columns, across_model, broken_rules, has_nulls, obeys, row_model
from starpo.schemas.rule import Rule
from starpo.schemas.rules import ACROSS_RULES, ROW_RULES
from starpo.schemas.violation import FAILURE_CASES, ContractViolation

_MAX_CASES = 1000  # rows kept per rule and batch; all are counted
_SHOWN_ROWS = 3
_SHOWN_RULES = 5
_SHOWN_CHARACTERS = 120


def validate(table: pa.Table, kind: str) -> None:
    """Check that a table is a valid dataset of this kind. An empty table is valid.

    Raises:
        ContractViolation: If it is not valid.
        KeyError: If there is no such kind.
    """
    validator = Validator(kind)
    validator.check(table)
    validator.finish()


@dataclass
class _Failure:
    """A violated rule: the number of failing rows, and the first of them."""

    columns: tuple[str, ...]
    text: str
    num_rows: int
    cases: list[tuple[int | None, str, str]]


class Validator:
    """Validates a dataset batch by batch.

    Usage: `check` every batch, then `finish`; nothing is raised before that, so that a writer can continue and keep the
    whole dataset for inspection.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._dataset = DATASETS[kind]
        self._num_rows = 0
        self._kept: list[pl.DataFrame] = []
        self._is_comparable = True  # all batches have the columns
        self._failures: dict[str, _Failure] = {}

    def check(self, batch: pa.Table | pa.RecordBatch) -> None:
        """Check the columns and the row rules of the next rows, and keep what the across rules need.

        Nullability flags and metadata of the batch's schema are ignored: the values themselves are checked.
        """
        wrong = _schema_faults(batch.schema, self._dataset)
        for column, text, finding in wrong:
            self._add((column,), text, 1, [(None, "", finding)])
        if wrong:
            self._is_comparable = False
        else:
            frame = pl.DataFrame(pl.from_arrow(batch))
            if has_nulls(batch, self.kind) or not obeys(frame, row_model(self.kind)):
                self._report(row_model(self.kind), ROW_RULES[self.kind], frame, self._num_rows)
            texts = pl.col(pl.String).cast(pl.Categorical)
            self._kept.append(frame.select(across_columns(self.kind)).with_columns(texts))
        self._num_rows += batch.num_rows

    def finish(self) -> None:
        """Check the across rules, and report.

        Raises:
            ContractViolation: If any rule was violated in any batch.
        """
        if self._kept and self._is_comparable:
            frame, model = pl.concat(self._kept), across_model(self.kind)
            if not obeys(frame, model):
                self._report(model, ACROSS_RULES[self.kind], frame, 0)
        self._kept.clear()
        if self._failures:
            failures = list(self._failures.values())
            message = _message(self._dataset, failures, self._num_rows)
            raise ContractViolation(self.kind, message, _failure_cases(self.kind, failures))

    def _report(self, model: DataFrameSchema, rules: Sequence[Rule], frame: pl.DataFrame, first_row: int) -> None:
        """Record the rows that do not obey the model, whose check of the table consists of these rules."""
        key, broken = self._dataset.key, list(broken_rules(frame, model, rules))
        assert broken, f"no rule is broken in rows of '{self.kind}' that were refused"
        for columns, text, is_broken in broken:
            named = tuple(dict.fromkeys((*key, *columns)))
            failing = frame.select(named).with_row_index("_row", offset=first_row).filter(is_broken)
            cases = [
                (row["_row"], _pairs(row, key), _pairs(row, columns))
                for row in failing.head(_MAX_CASES).iter_rows(named=True)
            ]
            self._add(columns, text, failing.height, cases)

    def _add(
        self, columns: tuple[str, ...], text: str, num_rows: int, cases: Iterable[tuple[int | None, str, str]]
    ) -> None:
        failure = self._failures.setdefault(f"{columns} {text}", _Failure(columns, text, 0, []))
        failure.num_rows += num_rows
        failure.cases.extend(cases)


def _schema_faults(schema: pa.Schema, dataset: Dataset) -> list[tuple[str, str, str]]:
    """Return column, rule and finding for each fault. The order of columns matters; nullability flags and metadata do
    not."""
    expected = {c.name: c.type for c in dataset.columns}
    unknown = [name for name in schema.names if name not in expected]
    faults = [(name, "is not a column of this dataset", f"type {schema.field(name).type}") for name in unknown]
    missing = {name: type_ for name, type_ in expected.items() if name not in schema.names}
    faults += [(name, f"is a column of type {type_}", "no such column") for name, type_ in missing.items()]
    if not faults and schema.names != list(expected):
        faults.append((schema.names[0], f"is in the order {', '.join(expected)}", ", ".join(schema.names)))
    for name, type_ in expected.items() if not faults else ():
        actual = schema.field(name).type
        if _without_flags(actual) != _without_flags(type_):
            faults.append((name, f"is of type {type_}", f"type {actual}"))
    return faults


def _without_flags(type_: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", type_.value_type)) if pa.types.is_list(type_) else type_


def _pairs(row: dict[str, object], names: Iterable[str]) -> str:
    return ", ".join(f"{name}={_short(row[name])}" for name in names)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _message(dataset: Dataset, failures: list[_Failure], num_rows: int) -> str:
    lines = [
        f"dataset '{dataset.name}' (version {dataset.version}, {num_rows} rows) breaks {len(failures)} of its rules:"
    ]
    for failure in failures[:_SHOWN_RULES]:
        lines.append(f"- column '{failure.columns[0]}' {failure.text}: ")
        row, _, finding = failure.cases[0]
        if row is None:
            lines[-1] += f"found {finding}"
            continue
        lines[-1] += f"violated in {failure.num_rows} row{'s' if failure.num_rows != 1 else ''}"
        lines += [f"    row {row}: {_joined(id_, finding)}" for row, id_, finding in failure.cases[:_SHOWN_ROWS]]
    if len(failures) > _SHOWN_RULES:
        lines.append(f"- and {len(failures) - _SHOWN_RULES} more rules (see the failure cases)")
    lines.append(f"Fix the stage that makes '{dataset.name}', or, if the data were edited by hand, restore them.")
    return "\n".join(lines)


def _joined(id_: str, finding: str) -> str:
    return id_ if finding == id_ else f"{id_}: {finding}"


def _failure_cases(kind: str, failures: list[_Failure]) -> pa.Table:
    rows = [(kind, f.columns[0], f.text, *case) for f in failures for case in f.cases]
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=FAILURE_CASES)
