"""The parts of a run that cannot be replayed, in sentences, from marks in the manifests of rollouts and evaluations.

manifests -> `unreplayable` -> sentences        store, recorded stages -> `unreplayable_of` -> sentences
"""

from collections.abc import Iterable, Mapping

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys
from starpo.schemas.manifest import Manifest


def unreplayable(manifests: Iterable[Manifest]) -> list[str]:
    """Return a sentence for each environment whose episodes cannot be replayed, with the reason."""
    played = {(_environment(manifest), manifest.replay_fault) for manifest in manifests if manifest.replay_fault}
    return [
        f"The environment {name} cannot be replayed: {reason}. That its episodes went as stored cannot be verified; "
        "what was computed from them can."
        for name, reason in sorted(played)
    ]


def unreplayable_of(store: Store, iterations: Iterable[StageKeys]) -> list[str]:
    """Return the same for a run, judged by the latest artifact of each stage. Unreadable manifests are skipped.

    Args:
        store: Store that holds the run.
        iterations: Artifact keys by stage that the run recorded for each iteration, in order.
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
            continue  # code that needs this manifest raises the error


def _environment(manifest: Manifest) -> str:
    settings = manifest.settings.get("environment")
    return str(settings.get("type", "unknown")) if isinstance(settings, dict) else "unknown"
