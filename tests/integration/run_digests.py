"""Digests of everything that a run made; two runs that did the same work have equal digests."""

from starpo.ragen.store import Store

Digests = dict[tuple[int, str, str], str]
"""(iteration, stage, kind) -> content digest."""


def digests(store: Store, run: str) -> Digests:
    """Return the content digest of every artifact that a run made, also of those that were dropped since."""
    return {
        (iteration, stage, kind): store.lasting_manifest(kind, key).content_digest
        for iteration, stages in store.runs.iterations(run).items()
        for stage, keys in stages.items()
        for kind, key in keys.items()
    }
