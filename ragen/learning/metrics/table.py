"""The dataset `metrics`: named numbers of a stage -> rows -> values by name, or series over the iterations of a run."""

import math
from collections.abc import Iterable, Mapping

import pyarrow as pa

from starpo.ragen.core.errors import DataError
from starpo.schemas.datasets import METRICS

Series = dict[int, float]
"""Iteration -> value, in ascending order of iteration; iterations without a value are absent."""
BY_TAG = (
    "rollout/success_rate",
    "rollout/format_ok",
    "rollout/response_length_mean",
    "rollout/entropy",
    "reward/return_mean",
    "reward/in_group_std",
    "filter/num_kept",
    "filter/kept_share",
)
"""Metrics that are also measured for each part of a mixture."""


def metrics_table(iteration: int, stage: str, values: Mapping[str, float]) -> pa.Table:
    """Convert the metrics of one stage to rows.

    Args:
        iteration: Number of updates done before the stage began.
        stage: Stage that measured the metrics.
        values: Name -> finite number.

    Returns:
        Dataset `metrics`, one row per name, in the given order; may be empty.

    Raises:
        DataError: If a value is NaN or infinite.
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


def metric_values(metrics: pa.Table) -> dict[str, float]:
    """Convert the metrics that one stage measured at one iteration to name -> value."""
    return dict(zip(metrics["name"].to_pylist(), metrics["value"].to_pylist(), strict=True))


def metric_series(metrics: Iterable[pa.Table]) -> dict[str, Series]:
    """Convert the metrics of many iterations and stages to series by name.

    Args:
        metrics: Datasets `metrics` of one run, in any order; none is kept. If two stages measured the same name at the
            same iteration, the later row wins.

    Returns:
        One series per name, in order of first appearance.
    """
    series: dict[str, Series] = {}
    for table in metrics:
        columns = (table[name].to_pylist() for name in ("name", "iteration", "value"))
        for name, iteration, value in zip(*columns, strict=True):
            series.setdefault(name, {})[iteration] = value
    return {name: dict(sorted(values.items())) for name, values in series.items()}
