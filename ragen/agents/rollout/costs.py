"""What responses took (tokens, found prefixes, retries, money), on its way from the session to the stage's records.

session.usage() -> metadata of the `turns` that it played -> `play_shards` adds up -> the stage takes it off again

It travels with the rows because they may come from another process; datasets are stored without it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

_KEY = b"usage"


def with_usage(turns: pa.Table, usage: Mapping[str, float]) -> pa.Table:
    """The table with a note of what it took; the same table where that is nothing."""
    if not usage:
        return turns
    return turns.replace_schema_metadata({**(turns.schema.metadata or {}), _KEY: json.dumps(dict(usage))})


def take_usage(turns: pa.Table) -> tuple[pa.Table, dict[str, float]]:
    """The table as it is stored, and what it took."""
    metadata = dict(turns.schema.metadata or {})
    if _KEY not in metadata:
        return turns, {}
    usage = json.loads(metadata.pop(_KEY))
    return turns.replace_schema_metadata(metadata or None), usage


def total(usages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    summed: Counter[str] = Counter()
    for usage in usages:
        summed.update(usage)
    return dict(summed)
