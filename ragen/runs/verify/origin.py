"""Origin of results: what could explain a difference, and whether a manifest describes the expected work.

stored manifest, manifest of what was computed here -> different_origin        stored manifest, work -> mismatch
"""

from typing import Any

from starpo.ragen.config.structure import flattened
from starpo.ragen.core.registry import ENGINES, LEARNERS
from starpo.ragen.core.visible import quoted
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.runs.work import Work
from starpo.ragen.store.artifacts.keys import as_json
from starpo.schemas.manifest import Manifest

_LIBRARIES = tuple(dict.fromkeys((*ENGINES, *LEARNERS, "transformers", "numpy", "polars", "pyarrow")))
"""Libraries whose version may change the last bits of a result."""
_MACHINE = (
    *(("hardware", name) for name in ("machine", "cpu", "instructions", "gpu", "driver", "cuda", "cublas")),
    ("threads", "torch"),
)
"""Other properties that may do so, for results of torch."""
_PLACE = {"settings.iteration", "settings.attempt", "settings.cell"}
"""Settings that hold the position of a stage in a run."""
_OF_THE_MOMENT = {"settings.has_weights"}
"""Settings that depend on the contents of the store when the stage ran."""


def different_origin(stored: Manifest, computed: Manifest, is_from_torch: bool) -> str:
    """Describe how the machine, thread count and libraries that made an artifact differ from those here.

    Args:
        stored: The manifest under verification.
        computed: The manifest of the same work, done here.
        is_from_torch: Whether the stage computes with torch, whose last bits depend on processor and threads.

    Returns:
        A text such as `torch 2.12.0 (here 2.13.0)`; empty if nothing differs that could change a bit.
    """
    places: list[tuple[str, str]] = [("versions", name) for name in _LIBRARIES]
    if is_from_torch:
        places += _MACHINE
    values = ((name, _at(stored, section, name), _at(computed, section, name)) for section, name in places)
    return ", ".join(
        f"{'threads' if name == 'torch' and isinstance(there, int) else name} {there} (here {here})"
        for name, there, here in values
        if there is not None and here is not None and there != here
    )


def mismatch(stored: Manifest, work: Work) -> tuple[Verdict, str]:
    """Describe how the work in an artifact's manifest differs from the work expected in its place of a run.

    Their keys are known to differ. Settings, inputs and seed that both sides have must agree; for another version of
    the stage, whose settings may have another meaning, only inputs and position must.

    Args:
        stored: Manifest of the artifact.
        work: The expected work.

    Returns:
        DIFFERENT, with the settings, inputs or seed that differ, or the stage if that is another one. NOT_SHOWN if
        releases explain it: a setting exists on one side only, or the version of the stage or the code that settings
        name has changed.
    """
    if stored.stage.name != work.stage.name:
        return Verdict.DIFFERENT, f"{quoted(stored.stage.name)} made it, but its place requires {work.stage.name}"
    old, new = (
        flattened(as_json({"settings": side.settings, "inputs": side.inputs, "seed": side.seed}))
        for side in (stored, work)
    )
    compared = (old.keys() & new.keys()) - _OF_THE_MOMENT
    is_same_version = stored.stage.version == work.stage.version
    if not is_same_version:
        compared = {name for name in compared if name.startswith("inputs.") or name in _PLACE}
    differing = [
        f"{name} is {quoted(old[name])}, expected {quoted(new[name])}"
        for name in sorted(compared)
        if old[name] != new[name]
    ]
    if differing:
        return Verdict.DIFFERENT, f"the run's settings and record imply other work: {'; '.join(differing)}"
    if not is_same_version:
        made_by, version = stored.stage.version, work.stage.version
        return (
            Verdict.NOT_SHOWN,
            f"it was made by version {made_by} of the stage, and this release has version {version}",
        )
    one_sided = sorted(old.keys() ^ new.keys())
    if one_sided:
        return Verdict.NOT_SHOWN, f"this release describes the work differently: {', '.join(one_sided)}"
    return Verdict.NOT_SHOWN, "it was made with other code than this release would use"


def _at(manifest: Manifest, section: str, name: str) -> Any:
    facts = manifest.provenance.get(section)
    return facts.get(name) if isinstance(facts, dict) else None
