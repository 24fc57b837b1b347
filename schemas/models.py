"""Pandera models of every dataset, built from the checks of its columns and its rules.

datasets + checks + rules -> row_model (batch by batch), across_model (all rows together) -> obeys -> validate
"""

import os
from collections.abc import Iterator, Sequence
from functools import cache

import polars as pl
import pyarrow as pa
from pandera.polars import Check, Column, DataFrameSchema

from starpo.schemas.checks import CHECKS, NO_NULLS_INSIDE
from starpo.schemas.datasets import DATASETS
from starpo.schemas.rule import Rule, all_hold
from starpo.schemas.rules import ACROSS_RULES, ROW_RULES

UNIQUE = "identify a row: no two rows have the same"
NOT_NULL = "is neither null nor NaN"

if "POLARS_ENGINE_AFFINITY" not in os.environ:  # a user's own setting takes precedence
    # The streaming engine, polars' default, takes twice as long on a few thousand rows; more come in batches.
    pl.Config.set_engine_affinity("in-memory")


def has_nulls(rows: pa.Table | pa.RecordBatch, kind: str) -> bool:
    """Whether there are nulls where the dataset forbids them, for rows with its columns and types. Arrow counts nulls,
    so this costs almost nothing."""
    for column in DATASETS[kind].columns:
        values = rows.column(column.name)
        if values.null_count and not column.nullable:
            return True
        if pa.types.is_list(column.type):
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            if any(chunk.flatten().null_count for chunk in chunks):
                return True
    return False


def obeys(frame: pl.DataFrame, model: DataFrameSchema) -> bool:
    """Whether rows without forbidden nulls obey a model, decided by its checks one by one, up to the first that fails.

    `model.validate` would take more than twice as long, as it looks for nulls and duplicates in every column.
    """
    if model.unique and not frame.select(pl.struct(model.unique).is_unique().all()).item():
        return False
    rows = frame.lazy()
    checks = [("*", check) for check in model.checks]
    checks += [(name, check) for name, column in model.columns.items() for check in column.checks]
    return all(_verdict(rows, name, check).all() for name, check in checks)


def broken_rules(
    frame: pl.DataFrame, model: DataFrameSchema, rules: Sequence[Rule]
) -> Iterator[tuple[tuple[str, ...], str, pl.Series]]:
    """Yield what rows break: the columns concerned, the rule, and whether each row breaks it.

    `model.validate` would build its report from the values of these rows, and polars panics where lists begin with a
    null.

    Args:
        frame: The rows.
        model: Model of the rows.
        rules: The rules of which the model's check of the table consists.
    """
    rows = frame.lazy()
    verdicts: list[tuple[tuple[str, ...], str, pl.Series]] = []
    if model.unique:
        unique = tuple(model.unique)
        verdicts.append((unique, UNIQUE, frame.select(pl.struct(unique).is_unique()).to_series()))
    for name, column in model.columns.items():
        if not column.nullable:
            values = pl.col(name)
            is_value = (
                values.is_not_nan().fill_null(value=False) if frame.schema[name].is_float() else values.is_not_null()
            )
            verdicts.append(((name,), NOT_NULL, frame.select(is_value).to_series()))
        verdicts += [((name,), str(check.error), _verdict(rows, name, check)) for check in column.checks]
    verdicts += [(rule.columns, rule.text, _verdict(rows, "*", rule.check)) for rule in rules]
    for columns, text, verdict in verdicts:
        if not verdict.all():
            yield columns, text, ~verdict


def _verdict(rows: pl.LazyFrame, name: str, check: Check) -> pl.Series:
    """Return whether each row satisfies a check of this column, or of the table ('*'); null counts as satisfied."""
    output: pl.LazyFrame = check(rows, name).check_output
    return output.collect().to_series()


@cache
def row_model(kind: str) -> DataFrameSchema:
    """Model of a dataset's rows: the nulls and the checks of every column, and the row rules.

    Names, order and types of the columns are compared as Arrow's, which tell apart what polars does not.
    """
    columns = {}
    for column in DATASETS[kind].columns:
        of_lists = [NO_NULLS_INSIDE] if pa.types.is_list(column.type) else []
        checks = [*of_lists, *CHECKS[kind].get(column.name, ())]
        columns[column.name] = Column(checks=checks, nullable=column.nullable)
    return DataFrameSchema(columns, checks=_table_checks(ROW_RULES[kind]), name=kind)


@cache
def across_model(kind: str) -> DataFrameSchema:
    """Model of the columns in `across_columns`, over all rows: the key is unique, and the across rules."""
    return DataFrameSchema(checks=_table_checks(ACROSS_RULES[kind]), unique=list(DATASETS[kind].key), name=kind)


@cache
def across_columns(kind: str) -> tuple[str, ...]:
    """Return the columns that must be kept for all rows until the end."""
    return tuple(dict.fromkeys((*DATASETS[kind].key, *(name for rule in ACROSS_RULES[kind] for name in rule.columns))))


def _table_checks(rules: Sequence[Rule]) -> list[Check]:
    return [all_hold(rules)] if rules else []
