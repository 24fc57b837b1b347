"""A manifest detects edits."""

import pytest
from pydantic import ValidationError

from starpo.schemas.manifest import Manifest, Stage


def manifest() -> Manifest:
    return Manifest(
        kind="turns", key="k", stage=Stage(name="rollout", version=1), settings={"a": 1.5, "b": [1, 2]}, inputs={},
        seed=1, dataset_version=1, num_rows=0, files=(), content_digest="0" * 64,
    ).sealed()  # fmt: skip


def test_unsealed_and_unknown_keys_are_rejected() -> None:
    assert not manifest().model_copy(update={"manifest_digest": ""}).is_intact
    with pytest.raises(ValidationError):
        Manifest.model_validate({**manifest().model_dump(), "extra": 1})


def test_replay_fault_is_written_if_set() -> None:
    assert "replay_fault" not in manifest().model_dump_json()
    marked = manifest().model_copy(update={"replay_fault": "it asks the clock"}).sealed()
    assert marked.manifest_digest != manifest().sealed().manifest_digest
    assert Manifest.model_validate_json(marked.model_dump_json()) == marked
    assert not marked.model_copy(update={"replay_fault": ""}).is_intact
