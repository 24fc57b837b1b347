"""Access to stored metrics: by name, or as series over the iterations of a run."""

import pyarrow as pa

from starpo.ragen.store import Store

Series = dict[int, float]
"""Iteration -> value, in ascending order of iteration; iterations without a value are absent."""


def metric_values(metrics: pa.Table) -> dict[str, float]:
    """Convert the metrics that one stage measured at one iteration to name -> value."""
    return dict(zip(metrics["name"].to_pylist(), metrics["value"].to_pylist(), strict=True))


def stored_metrics(store: Store, key: str) -> dict[str, float]:
    """Read the same from the store; raises what `Store.read_table` does."""
    return metric_values(store.read_table("metrics", key, columns=["name", "value"]))


def metric_series(metrics: pa.Table) -> dict[str, Series]:
    """Convert the metrics of many iterations and stages to series by name.

    Args:
        metrics: Dataset `metrics` of one run, rows in any order. If two stages measured the same name at the same
            iteration, the later row wins.

    Returns:
        One series per name, in order of first appearance.
    """
    series: dict[str, Series] = {}
    columns = (metrics[name].to_pylist() for name in ("name", "iteration", "value"))
    for name, iteration, value in zip(*columns, strict=True):
        series.setdefault(name, {})[iteration] = value
    return {name: dict(sorted(values.items())) for name, values in series.items()}
