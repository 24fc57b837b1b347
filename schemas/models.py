"""Pandera models of every dataset, built from the checks of its columns and its rules.

datasets + checks + rules -> row_model (batch by batch), across_model (all rows together) -> validate
"""

import os
from functools import cache

import polars as pl
import pyarrow as pa
from pandera.polars import Column, DataFrameSchema

from starpo.schemas.checks import CHECKS, NO_NULLS_INSIDE
from starpo.schemas.datasets import DATASETS
from starpo.schemas.rules import ACROSS_RULES, ROW_RULES

if "POLARS_ENGINE_AFFINITY" not in os.environ:  # a user's own setting takes precedence
    # The streaming engine, polars' default, takes twice as long on a few thousand rows; more come in batches.
    pl.Config.set_engine_affinity("in-memory")


def has_nulls(rows: pa.RecordBatch, kind: str) -> bool:
    """Whether there are nulls where the dataset forbids them, for rows with its columns and types."""
    return any(
        (rows[column.name].null_count and not column.nullable)
        or (pa.types.is_list(column.type) and rows[column.name].flatten().null_count)
        for column in DATASETS[kind].columns
    )


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
