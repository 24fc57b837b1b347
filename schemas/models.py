"""Pandera models of every dataset, built from the checks of its columns and its rules.

datasets + checks + rules -> row_model (batch by batch), across_model (all rows together) -> obeys -> validate
"""

import os
from collections.abc import Iterator
from functools import cache

import polars as pl
import pyarrow as pa
from pandera.backends.polars.register import register_polars_backends
from pandera.polars import Check, Column, DataFrameSchema, PolarsData

from starpo.schemas.checks import CHECKS, NO_NULLS_INSIDE
from starpo.schemas.datasets import DATASETS
from starpo.schemas.rules import ACROSS_RULES, ROW_RULES

UNIQUE = "identify a row: no two rows have the same"
NOT_NULL = "is neither null nor NaN"

if "POLARS_ENGINE_AFFINITY" not in os.environ:  # a user's own setting takes precedence
    # The streaming engine, polars' default, takes twice as long on a few thousand rows; more come in batches.
    pl.Config.set_engine_affinity("in-memory")

register_polars_backends()  # `obeys` calls the checks without a schema, which would do this


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
    """Whether rows without forbidden nulls obey a model, decided in one call of polars.

    `model.validate` says which rows do not, but in hundreds of calls, each of which waits for a thread: seconds on a
    busy machine.
    """
    rows = frame.lazy()
    checks = [("*", check) for check in model.checks]
    checks += [(name, check) for name, column in model.columns.items() for check in column.checks]
    verdicts = [_verdict(rows, name, check) for name, check in checks]
    if model.unique:
        verdicts.append(rows.select(pl.struct(model.unique).is_unique()))
    found = pl.collect_all(verdicts, optimizations=pl.QueryOptFlags.none())
    return all(verdict.to_series().all() for verdict in found)  # null counts as satisfied, as in pandera


def broken_rules(frame: pl.DataFrame, model: DataFrameSchema) -> Iterator[tuple[tuple[str, ...], str, pl.Series]]:
    """Yield the rules of a model that rows break: the columns concerned, the rule, and whether each row breaks it.

    `model.validate` would build its report from the values of these rows, and polars panics where lists begin with a
    null.
    """
    rows = frame.lazy()
    rules: list[tuple[tuple[str, ...], str, pl.LazyFrame]] = []
    if model.unique:
        unique = tuple(model.unique)
        rules.append((unique, UNIQUE, rows.select(pl.struct(unique).is_unique())))
    for name, column in model.columns.items():
        if not column.nullable:
            values = pl.col(name)
            is_value = (
                values.is_not_nan().fill_null(value=False) if frame.schema[name].is_float() else values.is_not_null()
            )
            rules.append(((name,), NOT_NULL, rows.select(is_value)))
        rules += [((name,), str(check.error), _verdict(rows, name, check)) for check in column.checks]
    rules += [
        (tuple(str(check.name).split(", ")), str(check.error), _verdict(rows, "*", check)) for check in model.checks
    ]
    for columns, rule, verdict in rules:
        is_broken = ~verdict.collect().to_series().fill_null(value=True)
        if is_broken.any():
            yield columns, rule, is_broken


def _verdict(rows: pl.LazyFrame, name: str, check: Check) -> pl.LazyFrame:
    return check.get_backend(rows)(check).apply(PolarsData(rows, name))


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
    return DataFrameSchema(columns, checks=[rule.check for rule in ROW_RULES[kind]], name=kind)


@cache
def across_model(kind: str) -> DataFrameSchema:
    """Model of the columns in `across_columns`, over all rows: the key is unique, and the across rules."""
    return DataFrameSchema(
        checks=[rule.check for rule in ACROSS_RULES[kind]], unique=list(DATASETS[kind].key), name=kind
    )


@cache
def across_columns(kind: str) -> tuple[str, ...]:
    """Return the columns that must be kept for all rows until the end."""
    return tuple(dict.fromkeys((*DATASETS[kind].key, *(name for rule in ACROSS_RULES[kind] for name in rule.columns))))
