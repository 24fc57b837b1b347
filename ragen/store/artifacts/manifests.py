"""Parsing and checking of manifests."""

from functools import lru_cache
from pathlib import PurePosixPath

from pydantic import ValidationError

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.visible import quoted
from starpo.schemas.manifest import FORMAT_VERSION, Manifest


class ManifestFault(ValueError):  # noqa: N818 (the name says what it is)
    """What is wrong with a manifest, in a few words."""


def parse_manifest(kind: str, key: str, name: str, text: bytes) -> Manifest:
    """Parse the manifest of an artifact.

    Args:
        kind: Kind of the artifact.
        key: Key of the artifact.
        name: Name of the file that contains the manifest.
        text: Its content: JSON.

    Raises:
        ManifestFault: If it is not what was written, belongs to another artifact, or names files outside its folder.
        StoreError: If a newer release wrote it.
    """
    try:
        manifest, is_intact = _read(text)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise ManifestFault(f"{name} cannot be read ({place or 'JSON'}: {fault['msg']})") from error
    if manifest.format_version > FORMAT_VERSION:
        raise StoreError(
            f"the manifest of {kind}/{key} has format {manifest.format_version}, this release reads up to "
            f"{FORMAT_VERSION}: it was written by a newer release; use that one"
        )
    if not is_intact:
        raise ManifestFault(f"{name} was changed after it was written (its own digest differs)")
    if (manifest.kind, manifest.key) != (kind, key):
        raise ManifestFault(f"its manifest belongs to {manifest.kind}/{manifest.key}")
    for place in (place for entry in manifest.files for place in (entry.name, entry.path)):
        if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
            raise ManifestFault(f"its manifest names a file outside its folder: {quoted(place)}")
    return manifest


@lru_cache(maxsize=256)
def _read(text: bytes) -> tuple[Manifest, bool]:
    """Parse the content, and check its seal. Cached: the result depends on the content alone."""
    manifest = Manifest.model_validate_json(text)
    return manifest, manifest.is_intact
