"""What a run made, by digest: two runs that did the same work have the same."""

from starpo.ragen.store import Store

Digests = dict[tuple[int, str, str], str]
"""(iteration, stage, kind) -> content digest."""


def digests(store: Store, run: str) -> Digests:
    """Content digest of everything that a run made."""
    return {
        (iteration, stage, kind): store.manifest(kind, key).content_digest
        for iteration, stages in store.runs.iterations(run).items()
        for stage, keys in stages.items()
        for kind, key in keys.items()
    }
