"""A stored artifact compared with the recomputed one: the same, different, or different for a reason that excuses it.

stored artifact, recomputed manifest -> compare -> verdict, difference
"""

from pathlib import Path

from starpo.ragen.core.visible import quoted
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.differences import folder_difference, is_close, is_rounding, table_difference
from starpo.ragen.runs.verify.origin import different_origin
from starpo.ragen.runs.verify.recomputation import ARITHMETIC
from starpo.ragen.runs.verify.scratch import Stored
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Manifest


def compare(visit: Visit, stored: Stored, computed: Manifest, original: Store, again: Store) -> tuple[Verdict, str]:
    """Compare an artifact with the recomputed one.

    Args:
        visit: The stage that made it.
        stored: The artifact, without a fault.
        computed: Manifest of the recomputed one, which is stored under the key of this release.
        original: Store of the run.
        again: Store of what was recomputed.

    Returns:
        The verdict, and the difference or the reason; empty for SAME.
    """
    assert stored.manifest is not None
    is_arithmetic = visit.stage in ARITHMETIC
    if stored.manifest.content_digest == computed.content_digest:
        return _same_content(stored.manifest, computed)
    origin = different_origin(stored.manifest, computed, not is_arithmetic)
    if stored.table is not None:
        table = again.read_table(computed.kind, computed.key)
        if is_arithmetic and origin and is_rounding(stored.table, table):
            return _same_content(stored.manifest, computed)
        difference = table_difference(stored.table, table, DATASETS[computed.kind].key)
    elif stored.is_dropped:
        difference = "its files were dropped, and the recomputed digest differs from its manifest's"
    else:
        folder = original.local_folder(stored.manifest.kind, stored.manifest.key)
        difference = folder_difference(Path(folder), Path(again.local_folder(computed.kind, computed.key)))
    return _judged(visit, computed, origin, difference)


def _same_content(stored: Manifest, computed: Manifest) -> tuple[Verdict, str]:
    """Compare the manifests of equal contents."""
    difference = _manifest_difference(stored, computed)
    return (Verdict.DIFFERENT, difference) if difference else (Verdict.SAME, "")


def _judged(visit: Visit, computed: Manifest, origin: str, difference: str) -> tuple[Verdict, str]:
    """Return the verdict on contents that differ, and the difference with what excuses it, if anything does."""
    if visit.excuse:
        return Verdict.NOT_SHOWN, f"{visit.excuse}; {difference}"
    if visit.stage in ARITHMETIC:
        return Verdict.DIFFERENT, difference
    if not computed.is_deterministic:
        return Verdict.NOT_SHOWN, f"on this machine the work is not deterministic; {difference}"
    if origin:
        return Verdict.NOT_SHOWN, f"it was made with {origin}; {difference}"
    return Verdict.DIFFERENT, difference


def _manifest_difference(stored: Manifest, computed: Manifest) -> str:
    """Describe where two manifests of the same content differ, other than in the digest; empty if they do not."""
    for name in ("dataset_version", "num_rows"):
        if getattr(stored, name) != getattr(computed, name):
            return f"{name} in the manifest is {getattr(stored, name)}, computed {getattr(computed, name)}"
    for name in sorted(stored.headline.keys() | computed.headline.keys()):
        before, value = stored.headline.get(name), computed.headline.get(name)
        if not is_close(before, value):
            return f"{quoted(name)} in the manifest's headline is {before}, computed {value}"
    return ""
