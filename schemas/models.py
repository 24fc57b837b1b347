"""Pandera models of every dataset, built from its columns and its rules.

datasets + rules -> row_model (batch by batch), across_model (all rows together), or whole_model (both) -> validate
"""

import os
from functools import cache

import polars as pl
import pyarrow as pa
from pandera.polars import Check, Column, DataFrameSchema, PolarsData
from polars import col

from starpo.schemas.datasets import DATASETS
from starpo.schemas.rule import Rule, each_item
from starpo.schemas.rules import ACROSS_RULES, ROW_RULES

if "POLARS_ENGINE_AFFINITY" not in os.environ:  # a user's own setting takes precedence
    # The streaming engine, polars' default, takes twice as long on a few thousand rows; more come in batches.
    pl.Config.set_engine_affinity("in-memory")


@cache
def null_rules(kind: str) -> tuple[Rule, ...]:
    """Return the rules for nulls. Arrow tracks null counts, so `has_nulls` checks all of them at almost no cost."""
    columns = DATASETS[kind].columns
    lists = [c.name for c in columns if pa.types.is_list(c.type)]
    return (
        *(Rule((c.name,), "is never null", col(c.name).is_not_null()) for c in columns if not c.nullable),
        *(Rule((n,), "holds no nulls inside its lists", each_item(n, pl.element().is_not_null())) for n in lists),
    )


def has_nulls(rows: pa.Table | pa.RecordBatch, kind: str) -> bool:
    """Whether one of `null_rules` is violated, for rows with the dataset's columns and types."""
    for column in DATASETS[kind].columns:
        values = rows.column(column.name)
        if values.null_count and not column.nullable:
            return True
        if pa.types.is_list(column.type):
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            if any(chunk.flatten().null_count for chunk in chunks):
                return True
    return False


@cache
def row_rules(kind: str) -> tuple[Rule, ...]:
    """Return the rules on single rows: those of all datasets, then those of this kind."""
    return (*null_rules(kind), *ROW_RULES[kind])


@cache
def across_rules(kind: str) -> tuple[Rule, ...]:
    """Return the rules across rows: the key is unique, then those of this kind."""
    key = DATASETS[kind].key
    return (Rule(key, "identify a row: no two rows have the same", pl.struct(*key).is_unique()), *ACROSS_RULES[kind])


def across_columns(kind: str) -> tuple[str, ...]:
    """Return the columns that must be kept for all rows until the end."""
    return tuple(dict.fromkeys((*DATASETS[kind].key, *(name for rule in across_rules(kind) for name in rule.columns))))


@cache
def row_model(kind: str) -> DataFrameSchema:
    """Pandera model of a dataset's rows: the exact columns in order, their types, and all row rules."""
    return DataFrameSchema(_columns(kind), checks=_check(row_rules(kind)), strict=True, ordered=True, name=kind)


@cache
def across_model(kind: str) -> DataFrameSchema:
    """Pandera model of the columns in `across_columns`, over all rows."""
    return DataFrameSchema(checks=_check(across_rules(kind)), name=kind)


@cache
def whole_model(kind: str) -> DataFrameSchema:
    """Pandera model of a whole dataset in one pass: row rules and across rules.

    For rows that are known to have the dataset's columns and types, and no forbidden nulls: checking these again,
    column by column, would take longer than the rules do on the few thousand rows of an iteration.
    """
    return DataFrameSchema(checks=_check((*ROW_RULES[kind], *across_rules(kind))), name=kind)


def _columns(kind: str) -> dict[str, Column]:
    dataset = DATASETS[kind]
    types = pl.DataFrame(pl.from_arrow(dataset.schema.empty_table())).schema
    return {c.name: Column(types[c.name], nullable=True) for c in dataset.columns}  # nulls: see the row rules


def _check(rules: tuple[Rule, ...]) -> Check:
    """Combine rules into one check, with one pass per grouping; evaluate each `Rule` separately to find the one that
    failed.

    Null counts as satisfied, as in `all`. Query optimisation is disabled, as there are many rules and few rows.
    """

    groupings = {
        within: [rule.holds.alias(str(i)) for i, rule in enumerate(rules) if rule.within == within]
        for within in dict.fromkeys(rule.within for rule in rules)
    }
    verdict_of = {within: pl.all_horizontal(pl.exclude(within)).all() for within in groupings}

    def obeys(data: PolarsData) -> bool:
        verdicts = []
        for within, holds in groupings.items():
            rows = data.lazyframe.group_by(within).agg(holds) if within else data.lazyframe.select(holds)
            verdicts.append(rows.select(verdict_of[within]))
        return all(verdict.item() for verdict in pl.collect_all(verdicts, optimizations=pl.QueryOptFlags.none()))

    return Check(obeys, name="obeys every rule")
