"""Ancestors and descendants: the whole chain, each work once, with its gaps reported."""

import json
import shutil
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, StoreError
from starpo.ragen.evidence.audit.lineage import lineage, near
from starpo.ragen.store import Facts, Store
from tests.examples import put_folder

from .conftest import fill


@pytest.fixture
def copied(filled_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled_folder, tmp_path / "store"))


def key(store: Store, iteration: int, stage: str) -> str:
    return next(iter(store.runs.iteration("mine", iteration)[stage].values()))


def test_ancestors_and_descendants_of_reused_rollout(filled: Store) -> None:
    whole = lineage(filled, "mine:0:rollout")
    assert whole.root.names == ("mine:0:rollout", "mine:1:rollout")
    ahead = {work.names[0]: work.distance for work in whole.works.values() if work.distance > 0}
    assert ahead == {
        "mine:0:reward": 1,
        "mine:0:variance_filter": 1,
        "mine:0:update": 1,
        "mine:1:update": 1,
        "mine:2:rollout": 2,
        "mine:2:update": 2,
        "mine:2:reward": 3,
        "mine:2:variance_filter": 3,
    }


def test_chain_reaches_its_beginning(filled: Store) -> None:
    whole = lineage(filled, "mine:2:update")
    behind = {work.names[0] for work in whole.works.values() if work.distance < 0 and work.names}
    assert {"mine:0:rollout", "mine:0:update", "mine:1:update", "mine:2:rollout"} <= behind
    roles = {role for source, role, target in whole.edges if target == whole.root.key}
    assert roles == {"checkpoint", "turns", "rewards", "selection"}
    assert whole.works[key(filled, 2, "update")].kinds == ("metrics", "samples")
    assert all(source in whole.works and target in whole.works for source, _, target in whole.edges)


def test_artifact_has_several_names(filled: Store) -> None:
    wanted = key(filled, 0, "reward")
    for name in (wanted, f"rewards/{wanted}", f"rewards/{wanted[:12]}", wanted[:12], "mine:0:reward", "mine:1:reward"):
        assert lineage(filled, name).root.key == wanted


def test_missing_artifact_ends_chain_visibly(filled: Store) -> None:
    assert lineage(filled, "mine:0:rollout").missing == ("0" * 32,)
    work = lineage(filled, "mine:0:rollout").works["0" * 32]
    assert (work.is_missing, work.distance) == (True, -1)


def test_a_dropped_artifact_keeps_its_place(copied: Path, tmp_path: Path) -> None:
    store = Store(str(copied))
    manifest = store.manifest("samples", key(store, 0, "update"))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w").write_bytes(b"1")
    work = {"stage": manifest.stage, "settings": {}, "inputs": manifest.inputs, "seed": None}
    put_folder(store, "checkpoint", str(tmp_path / "weights"), Facts(key=manifest.key, **work))
    store.drop("checkpoint", manifest.key)
    whole = lineage(store, f"checkpoint/{manifest.key}")
    assert (whole.root.kinds, whole.root.dropped) == (("metrics", "samples"), ("checkpoint",))
    for kind in ("samples", "metrics"):
        shutil.rmtree(copied / kind / manifest.key)
    whole = lineage(store, f"checkpoint/{manifest.key}")
    assert (whole.root.kinds, whole.root.is_missing) == ((), False)
    assert manifest.key not in whole.missing


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("ffff", ArtifactMissingError, "no artifact 'ffff'"),
        ("zebra", ArtifactMissingError, "expected kind/key"),
        ("", ArtifactMissingError, "expected kind/key"),
        ("turns/", ArtifactMissingError, "expected kind/key"),
        ("mind:0:rollout", StoreError, "did you mean mine"),
        ("mine:7:rollout", ConfigError, "it has 0 to 2"),
        ("mine:x:rollout", ConfigError, "no iteration 'x'"),
        ("mine:0:rolout", ConfigError, "did you mean rollout"),
        ("mine:0", ConfigError, "it has reward, rollout, update, variance_filter"),
    ],
)
def test_missing_artifact_is_explained(filled: Store, name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lineage(filled, name)


def test_edited_manifest_in_chain_is_error(copied: Path) -> None:
    store = Store(str(copied))
    edited = key(store, 0, "reward")
    file = copied / "rewards" / edited / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_rows": 1}))
    with pytest.raises(ArtifactDamagedError, match="changed after it was written"):
        lineage(store, "mine:0:update")
    whole = lineage(store, "mine:0:rollout")
    assert any(edited in fault for fault in whole.unreadable)


def test_runs_sharing_artifact_are_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    fill(store, "first", num_iterations=1)
    fill(store, "second", num_iterations=1)
    assert set(lineage(store, "first:0:reward").root.names) == {"first:0:reward", "second:0:reward"}


def test_depth_limits_the_lineage(filled: Store) -> None:
    whole = lineage(filled, "mine:2:update")
    assert near(whole, 0).works == whole.works
    part = near(whole, 1)
    assert 1 < len(part.works) < len(whole.works)
    assert {abs(work.distance) for work in part.works.values()} == {0, 1}
    assert all(source in part.works and target in part.works for source, _, target in part.edges)


def test_ambiguous_key_prefix_is_refused(filled: Store) -> None:
    keys = {key for stages in filled.runs.iterations("mine").values() for ks in stages.values() for key in ks.values()}
    shared = next(key[0] for key in sorted(keys) if sum(other[0] == key[0] for other in keys) > 1)
    with pytest.raises(ConfigError, match=r"matches .* keys: .* give more of its digits"):
        lineage(filled, shared)
