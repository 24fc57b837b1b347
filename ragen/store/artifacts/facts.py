"""The facts of a manifest besides content: the work that an artifact stands for, and how it was done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.store.artifacts.keys import as_json
from starpo.ragen.store.artifacts.provenance import collect
from starpo.schemas.manifest import Manifest, Stage


@dataclass(frozen=True)
class Facts:
    """What a manifest says besides the content. Mappings are copied at construction.

    Attributes:
        key: From `ragen.store.artifacts.keys.stage_key`.
        stage: The stage that made the artifact.
        settings: The stage's own configuration, as JSON.
        inputs: Role -> key of each artifact it was made from.
        seed: The stage's seed, if it has one.
        headline: A few finite numbers that summarise the content.
        is_deterministic: Whether the same work would give the same content on this kind of machine.
        provenance: Additional volatile facts, such as timings.
        code: Role -> identity of the code that the settings name.
        replay_fault: Why the environment that was played cannot be replayed.
        machine_facts: Volatile facts of the machine and the moment; merged into `provenance`.
    """

    key: str
    stage: Stage
    settings: dict[str, Any]
    inputs: Mapping[str, str]
    seed: int | None
    headline: Mapping[str, float] | None = None
    is_deterministic: bool = True
    provenance: Mapping[str, Any] | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    replay_fault: str = ""
    machine_facts: Mapping[str, Any] = field(default_factory=collect)

    def __post_init__(self) -> None:
        """Copy what the caller may change afterwards: the manifest may be written later."""
        taken = {
            "settings": as_json(self.settings),
            "inputs": dict(self.inputs),
            "code": dict(self.code),
            "headline": as_json(self.headline or {}),
            "provenance": as_json(self.provenance or {}),
        }
        for name, value in taken.items():
            object.__setattr__(self, name, value)

    def manifest(
        self, kind: str, content_digest: str, *, dataset_version: int | None = None, num_rows: int | None = None
    ) -> Manifest:
        """Return the manifest without `files`.

        Args:
            kind: Kind of the artifact.
            content_digest: 64 hex digits.
            dataset_version: Version of the schema, if it is a dataset.
            num_rows: Number of rows, if it is a dataset.
        """
        return Manifest(
            kind=kind,
            key=self.key,
            stage=self.stage,
            settings=self.settings,
            inputs=dict(self.inputs),
            seed=self.seed,
            code=dict(self.code),
            files=(),
            is_deterministic=self.is_deterministic,
            replay_fault=self.replay_fault,
            headline=dict(self.headline or {}),
            provenance={**self.machine_facts, **(self.provenance or {})},
            content_digest=content_digest,
            dataset_version=dataset_version,
            num_rows=num_rows,
        )
