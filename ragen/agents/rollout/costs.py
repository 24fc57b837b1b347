"""Usage of responses (tokens, cached prefixes, retries, money), passed from the session to the stage's records.

session.usage() -> metadata of its `turns` -> summed by `play_shards` -> removed by the stage

It is attached to the rows because they may come from another process; datasets are stored without it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

_KEY = b"usage"


def with_usage(turns: pa.Table, usage: Mapping[str, float]) -> pa.Table:
    """Attach usage to a table's metadata; the table is unchanged if usage is empty."""
    if not usage:
        return turns
    return turns.replace_schema_metadata({**(turns.schema.metadata or {}), _KEY: json.dumps(dict(usage))})


def take_usage(turns: pa.Table) -> tuple[pa.Table, dict[str, float]]:
    """Split a table into the table as stored and its usage."""
    metadata = dict(turns.schema.metadata or {})
    if _KEY not in metadata:
        return turns, {}
    usage = json.loads(metadata.pop(_KEY))
    return turns.replace_schema_metadata(metadata or None), usage


def total(usages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sum usages by name."""
    summed: Counter[str] = Counter()
    for usage in usages:
        summed.update(usage)
    return dict(summed)
