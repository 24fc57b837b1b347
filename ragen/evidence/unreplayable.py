"""What of a run cannot be played again: marks in the manifests of what it played, in words.

manifests -> `unreplayable` -> sentences        store, recorded stages -> `unreplayable_of` -> sentences
"""

from collections.abc import Iterable, Mapping

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys
from starpo.schemas.manifest import Manifest


def unreplayable(manifests: Iterable[Manifest]) -> list[str]:
    """A sentence for each environment whose episodes cannot be played again, and why."""
    played = {(_environment(manifest), manifest.replay_fault) for manifest in manifests if manifest.replay_fault}
    return [
        f"The environment {name} cannot be replayed: {reason}. Nothing shows that its episodes went as stored; what "
        "was computed from them can be verified."
        for name, reason in sorted(played)
    ]


def unreplayable_of(store: Store, iterations: Iterable[StageKeys]) -> list[str]:
    """The same of a run, by what each of its stages made last. A manifest that cannot be read is passed over.

    Args:
        store: Where the run is.
        iterations: What it recorded of each iteration, in order.
    """
    latest: dict[str, Mapping[str, str]] = {}
    for stages in iterations:
        latest |= {stage: keys for stage, keys in stages.items() if {"turns", "episodes"} & keys.keys()}
    return unreplayable(_readable(store, latest.values()))


def _readable(store: Store, works: Iterable[Mapping[str, str]]) -> Iterable[Manifest]:
    for keys in works:
        kind = "turns" if "turns" in keys else "episodes"
        try:
            yield store.manifest(kind, keys[kind])
        except StoreError:
            continue  # whoever asks for it will be told


def _environment(manifest: Manifest) -> str:
    settings = manifest.settings.get("environment")
    return str(settings.get("type", "unknown")) if isinstance(settings, dict) else "unknown"
