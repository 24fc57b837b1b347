"""Stored metrics by name."""

from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.store import Store


def stored_metrics(store: Store, key: str, *, should_validate: bool = True) -> dict[str, float]:
    """Read the metrics that one stage measured at one iteration; arguments and errors are `Store.read_table`'s."""
    columns = ["name", "value"]
    return metric_values(store.read_table("metrics", key, columns, should_validate=should_validate))
