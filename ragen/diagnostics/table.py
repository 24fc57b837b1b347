"""Named numbers as the dataset `metrics`, and that dataset as series over iterations."""

import math
from collections.abc import Mapping

import pyarrow as pa

from ragen.errors import DataError
from schemas.datasets import METRICS

Series = dict[int, float]
"""Iteration -> value, in ascending order of iteration; an iteration without the number is absent."""


def metrics_table(iteration: int, stage: str, values: Mapping[str, float]) -> pa.Table:
    """One stage's numbers as rows.

    Args:
        iteration: Updates done before the stage began.
        stage: The stage that measured them.
        values: Name -> finite number.

    Returns:
        Dataset `metrics`, a row a name, in the order given; empty if there is none.

    Raises:
        DataError: If a number is NaN or infinite.
    """
    not_finite = {name: value for name, value in values.items() if not math.isfinite(value)}
    if not_finite:
        raise DataError(
            f"metrics of stage '{stage}' at iteration {iteration} are not finite: {not_finite}; a number that does not "
            "exist must be left out, and a loss that is not finite must stop the update"
        )
    columns = [[iteration] * len(values), [stage] * len(values), list(values), [float(v) for v in values.values()]]
    schema = METRICS.schema
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def metric_series(metrics: pa.Table) -> dict[str, Series]:
    """The inverse over many iterations: name -> its values by iteration.

    Args:
        metrics: Dataset `metrics` of one run, rows in any order. Where two stages measured the same name at the same
            iteration, the later row counts.

    Returns:
        A series for every name, in order of first appearance.
    """
    series: dict[str, Series] = {}
    columns = (metrics[name].to_pylist() for name in ("name", "iteration", "value"))
    for name, iteration, value in zip(*columns, strict=True):
        series.setdefault(name, {})[iteration] = value
    return {name: dict(sorted(values.items())) for name, values in series.items()}
