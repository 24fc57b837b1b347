"""Measurements of stored turns that no record names, as records are sealed when they are written: found by inputs.

turns of an iteration -> `credits`, `credit_estimates` whose inputs they are -> iteration -> stage -> {kind: key}
"""

from collections.abc import Callable, Mapping

from starpo.ragen.store.attempts import numbered, of_kind, recorded_data
from starpo.ragen.store.records.seals import StageKeys
from starpo.ragen.store.store import Store
from starpo.schemas.manifest import Manifest

MEASURED = {"credits": "credit", "credit_estimates": "credit_estimates"}
"""Kind of what is measured afterwards -> the stage that makes it."""


def measurements(
    store: Store,
    iterations: Mapping[int, StageKeys],
    manifest_of: Callable[[str, str], Manifest | None] | None = None,
) -> dict[int, StageKeys]:
    """Return what was measured of the turns of these iterations, as if their records named it.

    A measurement of credit that another one refined is left out. Of several, such as of different groups, the stages
    are numbered (`ragen.store.attempts`).

    Args:
        store: The store; its artifacts of these kinds are listed.
        iterations: Iteration -> its recorded stages.
        manifest_of: Reads a manifest by kind and key, None if it cannot be read. None: `Store.manifest`.

    Raises:
        ArtifactDamagedError: If a manifest is not what was written, unless `manifest_of` does not raise it.
    """
    read, measured = manifest_of or store.manifest, dict[int, StageKeys]()
    for kind, stage in MEASURED.items():
        keys = [key for key in store.keys(kind) if store.has(kind, key)]
        manifests = [manifest for key in keys if (manifest := read(kind, key)) is not None]
        refined = {manifest.inputs.get(kind) for manifest in manifests}
        for iteration, stages in iterations.items():
            of_iteration = [one for one in manifests if one.key not in refined and _is_of(one, iteration, stages)]
            for number, manifest in enumerate(of_iteration):
                measured.setdefault(iteration, {})[numbered(stage, number)] = {kind: manifest.key}
    return measured


def _is_of(manifest: Manifest, iteration: int, stages: StageKeys) -> bool:
    turns = of_kind(recorded_data(stages), "turns")
    is_there = manifest.settings.get("iteration", iteration) == iteration
    return bool(turns) and is_there and of_kind(manifest.inputs, "turns") == turns
