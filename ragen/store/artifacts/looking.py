"""Integrity of an artifact: its content, and whether its folder and its manifest agree."""

from starpo.ragen.store.artifacts.files import differences
from starpo.ragen.store.artifacts.folders import digest_of
from starpo.ragen.store.remote.committing import DROPPED_NAME
from starpo.ragen.store.remote.location import Location
from starpo.schemas.manifest import MANIFEST_NAME, Manifest


def faults(location: Location, manifest: Manifest) -> list[str]:
    """List differences from what was written. Every file is read and hashed in place, regardless of earlier checks.

    Returns:
        A sentence for each file that is missing or whose content differs, and the findings of `contradictions`; empty
        for an intact artifact.
    """
    findings = contradictions(location, manifest)
    for entry in manifest.files:
        try:
            digest = location.digest(f"{manifest.kind}/{manifest.key}/{entry.path}")
        except FileNotFoundError:
            findings.append(f"the file {entry.name} is missing")
        else:
            findings += differences(entry, *digest)
    return findings


def digest_faults(manifest: Manifest) -> list[str]:
    """Say whether the content digest of a folder of files contradicts the digests of these, both from its manifest."""
    if manifest.dataset_version is None and digest_of(manifest.files) != manifest.content_digest:
        return ["the content digest in its manifest does not match its files"]
    return []


def contradictions(location: Location, manifest: Manifest) -> list[str]:
    """List contradictions between an artifact and its manifest that can be found without reading a file.

    Returns:
        A sentence for each file in its folder that the manifest does not name, and one if the content digest of a
        folder of files does not match its files. On object storage, files that a killed writer left under its own names
        are ignored, as readers only fetch what the manifest names.
    """
    findings = digest_faults(manifest)
    folder = f"{manifest.kind}/{manifest.key}/"
    named = {MANIFEST_NAME, DROPPED_NAME, *(entry.path for entry in manifest.files)}
    for path in (file.path.removeprefix(folder) for file in location.files(folder.rstrip("/"))):
        if path not in named and not location.is_attempt(path):
            findings.append(f"its folder has the file {path!r}, which its manifest does not list")
    return findings
