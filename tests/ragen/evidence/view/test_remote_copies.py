"""Pages of a remote store read manifests once per machine, and again where an artifact was made anew."""

import shutil
import uuid
from pathlib import Path

import fsspec
import pytest

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.evidence.view.reading import StoreReader, ViewedRun
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.remote.object_storage import ObjectStorage
from starpo.schemas.manifest import Stage

NAME = "reward/mean"
FACTS = Facts(key="k" * 32, stage=Stage(name="reward", version=1), settings={}, inputs={}, seed=0)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A remote store with a run of one stage; what this machine copied is removed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = Store(f"memory://{uuid.uuid4().hex}/store")
    store.runs.create(
        "mine", flow="starpo", preset="mine", config=StarPOConfig(environment=SokobanSettings()).model_dump(mode="json")
    )
    put(store, 1.0)
    store.runs.record_stage("mine", 0, "reward", {"metrics": FACTS.key})
    shutil.rmtree(tmp_path / "starpo")
    return store.url


def put(store: Store, value: float) -> None:
    store.put_table("metrics", metrics_table(0, "reward", {NAME: value}), FACTS)


def viewed(url: str) -> ViewedRun:
    """Read the run as a server does that was just started."""
    return StoreReader(Store(url)).run("mine")


def test_restarted_server_reads_records_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, paths, read = viewed(url), [], ObjectStorage.read
    assert first.data.series[NAME] == {0: 1.0}
    monkeypatch.setattr(ObjectStorage, "read", lambda self, path: paths.append(path) or read(self, path))
    assert viewed(url).data == first.data
    assert {path.split("/")[0] for path in paths} == {"runs"}


def test_artifact_made_anew_is_read_again(url: str, tmp_path: Path) -> None:
    viewed(url)
    fsspec.filesystem("memory").rm(f"{url.removeprefix('memory:/')}/metrics/{FACTS.key}", recursive=True)
    put(Store(url), 2.0)
    for copy in (tmp_path / "starpo").iterdir():
        if not (copy / "content").exists():
            shutil.rmtree(copy)
    (missing,) = viewed(url).missing
    assert "was recreated by another process" in missing.reason
    again = viewed(url)
    assert (again.data.series[NAME], again.missing) == ({0: 2.0}, ())
