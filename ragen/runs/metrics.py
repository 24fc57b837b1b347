"""Stored metrics by name."""

from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.store import Store


def stored_metrics(store: Store, key: str) -> dict[str, float]:
    """Read the metrics that one stage measured at one iteration; raises what `Store.read_table` does."""
    return metric_values(store.read_table("metrics", key, columns=["name", "value"]))
