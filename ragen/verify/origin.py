"""Where results come from: what could excuse a difference, and whether two manifests tell of the same work.

stored manifest, manifest of what was computed here -> different_origin, other_work
"""

from collections.abc import Iterator
from typing import Any

from ragen.verify.finding import Verdict, shown
from schemas.manifest import Manifest

_LIBRARIES = ("torch", "transformers", "numpy", "polars", "pyarrow", "vllm", "deepspeed")
"""Those whose version may move the last bits of a result."""
_MACHINE = (("hardware", "machine"), ("hardware", "cpu"), ("hardware", "gpu"), ("threads", "torch"))
"""What else may, where a result comes out of torch."""


def different_origin(stored: Manifest, computed: Manifest, is_from_torch: bool) -> str:
    """Say how the machine, thread count and libraries that made an artifact differ from those here.

    Args:
        stored: The manifest under verification.
        computed: The manifest of the same work, done here.
        is_from_torch: Does the stage compute with torch, whose last bits depend on processor and threads?

    Returns:
        Such as `torch 2.12.0 (here 2.13.0)`; empty if nothing differs that could move a bit.
    """
    places: list[tuple[str, str]] = [("versions", name) for name in _LIBRARIES]
    if is_from_torch:
        places += _MACHINE
    found = ((name, _at(stored, section, name), _at(computed, section, name)) for section, name in places)
    return ", ".join(
        f"{'threads' if name == 'torch' and isinstance(there, int) else name} {there} (here {here})"
        for name, there, here in found
        if there is not None and here is not None and there != here
    )


def other_work(stored: Manifest, computed: Manifest) -> tuple[Verdict, str]:
    """Say how the work that a run's settings and record imply differs from that which an artifact tells of.

    Returns:
        DIFFERENT, and the settings, inputs or seed that differ; NOT_REPEATABLE where one side knows settings that the
        other does not, as after a change of release.
    """
    old, new = (
        dict(_leaves({"settings": manifest.settings, "inputs": manifest.inputs, "seed": manifest.seed}))
        for manifest in (stored, computed)
    )
    one_sided = sorted(old.keys() ^ new.keys())
    if one_sided:
        return Verdict.NOT_REPEATABLE, f"this release describes the work otherwise: {', '.join(one_sided)}"
    differing = [
        f"{name} is {shown(old[name])}, by the run {shown(new[name])}" for name in old if old[name] != new[name]
    ]
    return Verdict.DIFFERENT, f"the run's settings and record name other work: {'; '.join(differing)}"


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{place}.{name}" if place else name)
    else:
        yield place, value


def _at(manifest: Manifest, section: str, name: str) -> Any:
    facts = manifest.provenance.get(section)
    return facts.get(name) if isinstance(facts, dict) else None
