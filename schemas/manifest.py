"""The manifest: metadata stored, last and once, with every artifact.

Identity (`kind`, `key`, `stage`, `inputs`, `settings`, `seed`, `code`, `files`, `content_digest`) is what replay and
verification rely on; everything under `provenance` is volatile and outside every digest. A manifest is sealed with the
digest of its non-volatile fields, so that edits are detected.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 1


class StrictModel(BaseModel):
    """Base model: frozen, unknown keys rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FileEntry(StrictModel):
    """A file of an artifact."""

    name: str
    """Name used by readers, such as `part-00000.parquet` or `model.safetensors`."""
    path: str
    """Path relative to the artifact's folder; on object storage it contains a prefix unique to its writer."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of its content."""
    size_bytes: int = Field(ge=0)
    """Size in bytes."""

    @classmethod
    def of(cls, file: Path, name: str) -> "FileEntry":
        """Return the entry of a file on this machine, which is hashed.

        Raises:
            OSError: If it cannot be read.
        """
        with file.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            return cls(name=name, path=name, sha256=sha256, size_bytes=os.fstat(stream.fileno()).st_size)


class Stage(StrictModel):
    """A stage and the version of its semantics."""

    name: str
    """Name, such as `rollout`."""
    version: int = Field(ge=1)
    """Incremented whenever the stage's output changes for the same input."""


class Manifest(StrictModel):
    """Metadata of an artifact."""

    format_version: int = FORMAT_VERSION
    """Version of this model."""
    kind: str
    """Dataset kind, or `checkpoint`."""
    key: str
    """Digest of stage, settings, input keys, seed and code."""
    stage: Stage
    """The stage that made it."""
    settings: dict[str, Any]
    """The stage's own configuration, as JSON."""
    inputs: dict[str, str]
    """Role -> key of every artifact that it was made from."""
    seed: int | None
    """The stage's seed, if it has one."""
    code: dict[str, str] = Field(default_factory=dict)
    """Role -> identity of the code that the settings name (`ragen.core.identity`): a digest of its source, or the
    version of its distribution. Empty if the stage names none."""
    dataset_version: int | None
    """Version of the dataset's schema; null for a checkpoint."""
    num_rows: int | None
    """Number of rows of the dataset; null for a checkpoint."""
    files: tuple[FileEntry, ...]
    """In reading order."""
    content_digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the logical data, not of the compressed bytes."""
    is_deterministic: bool = True
    """Whether the same work would give the same content digest on this kind of machine."""
    replay_fault: str = Field(default="", exclude_if=lambda reason: not reason)
    """Why the environment that was played cannot be replayed; only written if it cannot. Empty: it can, or none was
    played."""
    headline: dict[str, float] = Field(default_factory=dict)
    """A few numbers that summarise the content."""
    provenance: dict[str, Any] = Field(default_factory=dict)
    """Volatile: versions, hardware, threads, timings. Never secrets."""
    manifest_digest: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    """Digest of all fields except `provenance`, this one, and an empty `code`; empty until sealed."""

    def sealed(self) -> "Manifest":
        """Return this manifest with its `manifest_digest` filled in."""
        return self.model_copy(update={"manifest_digest": self._digest()})

    @property
    def is_intact(self) -> bool:
        """Whether the manifest is unchanged since it was sealed."""
        return self.manifest_digest == self._digest()

    def _digest(self) -> str:
        left_out = {"provenance", "manifest_digest"} | (set() if self.code else {"code"})
        lasting = self.model_dump(mode="json", exclude=left_out)
        return hashlib.sha256(json.dumps(lasting, sort_keys=True, allow_nan=False).encode()).hexdigest()
