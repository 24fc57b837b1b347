"""Is an artifact what was written? Its bytes, and whether its folder and its manifest agree."""

import re

from starpo.ragen.store.artifacts.committing import DROPPED_NAME
from starpo.ragen.store.artifacts.files import differences
from starpo.ragen.store.artifacts.folders import digest_of
from starpo.ragen.store.remote.location import Location
from starpo.schemas.manifest import MANIFEST_NAME, Manifest

_ATTEMPT = re.compile(r"[0-9a-f]{12}/")
"""What the names of an attempt's files begin with on object storage; see `Artifacts.sealed`."""


def faults(location: Location, manifest: Manifest) -> list[str]:
    """What differs from what was written: every file is read and hashed where it lies, whatever was read before.

    Returns:
        A sentence for each file that is missing or whose bytes are others, and what `contradictions` finds; empty for a
        sound artifact.
    """
    found = contradictions(location, manifest)
    for entry in manifest.files:
        try:
            digest = location.digest(f"{manifest.kind}/{manifest.key}/{entry.path}")
        except FileNotFoundError:
            found.append(f"the file {entry.name} is missing")
        else:
            found += differences(entry, *digest)
    return found


def contradictions(location: Location, manifest: Manifest) -> list[str]:
    """What of an artifact contradicts its manifest, as far as that shows without reading a file.

    Returns:
        A sentence for each file in its folder that the manifest does not name, and one if the content digest of a
        folder of files is not that of its files. On object storage, where readers fetch what the manifest names and
        nothing else, what a killed writer left under a name of its own is passed over.
    """
    found = []
    if manifest.dataset_version is None and digest_of(manifest.files) != manifest.content_digest:
        found.append("the content digest in its manifest is not that of its files")
    folder = f"{manifest.kind}/{manifest.key}/"
    named = {MANIFEST_NAME, DROPPED_NAME, *(entry.path for entry in manifest.files)}
    for path in (file.path.removeprefix(folder) for file in location.files(folder.rstrip("/"))):
        is_left_over = location.local is None and _ATTEMPT.match(path)
        if path not in named and not is_left_over:
            found.append(f"the file {path!r} is in its folder, and its manifest names no such file")
    return found
