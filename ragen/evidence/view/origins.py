"""What an artifact was made from and what was made from it, in all runs of the store, one step each way.

kind/key -> audit.lineage -> JSON
"""

from typing import Any

from starpo.ragen.evidence.audit.lineage import LineageStep, lineage
from starpo.ragen.store import Store

_MAX_WORKS = 5_000
"""Works whose manifests are read for an answer; a run of 300 iterations has 2,000."""


def origins(store: Store, artifact: str) -> dict[str, Any]:
    """Find the nearest relatives of an artifact.

    Args:
        store: Store to search.
        artifact: `kind/key`.

    Returns:
        JSON: the `root`, its `inputs` and its `users`, each with its key, its stage, and its names as (run, iteration,
        stage); `unreadable`, the number of manifests and records that cannot be read and might name more.

    Raises:
        ConfigError: If the store has too many works for a page to wait for.
        StoreError: If there is no such artifact, or its manifest is damaged.
    """
    whole = lineage(store, artifact, max_works=_MAX_WORKS)
    inputs = dict.fromkeys(whole.root.inputs.values())
    users = [key for key, work in whole.works.items() if work.distance == 1]
    return {
        "root": _described(whole.root),
        "inputs": [_described(whole.works[key]) for key in inputs],
        "users": [_described(whole.works[key]) for key in users],
        "unreadable": len(whole.unreadable),
    }


def _described(work: LineageStep) -> dict[str, Any]:
    return {"key": work.key, "stage": work.stage, "names": [name.split(":", 2) for name in work.names]}
