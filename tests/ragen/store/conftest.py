"""Fixtures for most tests of the store: a local store, one in memory, and the facts of an artifact."""

import uuid
from pathlib import Path

import pytest

from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage


@pytest.fixture
def work() -> Facts:
    """Facts of one artifact."""
    stage = Stage(name="rollout", version=1)
    return Facts(key="k" * 32, stage=stage, settings={"a": (1, 2.5)}, inputs={"checkpoint": "c"}, seed=7)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cache of remote artifacts, in the test's own folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "starpo"


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Store on disk, and one in memory, which is accessed like object storage."""
    return Store(str(tmp_path / "store") if request.param == "local" else f"memory://{uuid.uuid4().hex}/store")
