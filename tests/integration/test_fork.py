"""Forks of a real run: shared and new stages; resuming, verifying and replaying a fork like any other run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks import reward
from starpo.tasks.loop.fork import plan_fork
from starpo.tasks.loop.verify import verify_run
from tests.integration.forging import AFTER_START
from tests.integration.training import train_run

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

CHANGE = {"update.entropy_coefficient": 0.3, "filter.keep": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]) -> Path:
    """Store with 'base', of four updates with every other checkpoint dropped, and 'fork', from its checkpoint 3."""
    folder = tmp_path_factory.mktemp("forks") / "store"
    settings = {"iterations": 4, "checkpoint_every": 2, "evaluation.every": 2}
    train_run(preset("smoke", settings), store=begun(folder), run="base")
    train(Store(str(folder)), "base", 3, CHANGE, name="fork")
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Store:
    """Copy of the store for this test alone."""
    shutil.copytree(folder, tmp_path / "own", ignore=shutil.ignore_patterns("tmp"))
    return Store(str(tmp_path / "own"))


def train(store: Store, run: str, iteration: int, change: dict[str, object], name: str) -> None:
    fork = plan_fork(store, run, iteration, change)
    train_run(fork.config, preset=fork.base.preset or "", store=store.url, run=name)


def test_fork_shares_earlier_stages(folder: Path) -> None:
    store = Store(str(folder))
    base, fork = (store.runs.iterations(name) for name in ("base", "fork"))
    assert {n: fork[n] for n in (0, 1, 2)} == {n: base[n] for n in (0, 1, 2)}
    assert fork[3]["rollout"] == base[3]["rollout"]  # the same policy plays it, with the same settings
    assert fork[3]["variance_filter"] != base[3]["variance_filter"]
    assert fork[3]["update"] != base[3]["update"]
    made = store.manifest("metrics", fork[3]["update"]["metrics"]).settings
    assert made["entropy_coefficient"] == 0.3


def test_dropped_fork_checkpoint_is_derived(folder: Path) -> None:
    store = Store(str(folder))
    third = store.runs.iteration("base", 2)["update"]["checkpoint"]
    samples = store.runs.iteration("fork", 3)["update"]["samples"]
    assert store.dropped("checkpoint", third) is not None
    assert store.manifest("samples", samples).inputs["checkpoint"] == third


def test_fork_verified_resumed_and_replayed(folder: Path) -> None:
    store = Store(str(folder))
    verification = verify_run(store, "fork", **AFTER_START)
    assert (verification.outcome, verification.exit_code) == ("verified", 0)
    before = set(folder.rglob("*.parquet"))
    train(store, "base", 3, CHANGE, name="fork")
    assert set(folder.rglob("*.parquet")) == before
    branch = store.runs.iterations(replay("fork", start=2, store=str(folder)))
    assert {n: stages["update"] for n, stages in branch.items()} == {
        n: store.runs.iterations("fork")[n]["update"] for n in (2, 3)
    }


def test_nested_fork_omits_later_changes(copied: Store) -> None:
    again = plan_fork(copied, "fork", 3, {"filter.keep": 0.25})
    assert [change.set for change in again.config.schedule] == [CHANGE | {"filter.keep": 0.25}]
    earlier = plan_fork(copied, "fork", 1, {"filter.keep": 0.25})
    assert [change.iteration for change in earlier.config.schedule] == [1]


@pytest.mark.parametrize(
    ("iteration", "change", "message"),
    [
        (4, CHANGE, "cannot be forked from checkpoint 4; it can from 1 to 3"),
        (0, CHANGE, "cannot be forked from checkpoint 0; it can from 1 to 3"),
        (2, {}, "a fork that changes nothing is the run itself"),
        (2, {"environment.min_solution": 4}, "environment.min_solution cannot change during training"),
        (2, {"update.entropy": 0.1}, "no such setting"),
        (2, {"rollout.staleness": 1}, "it decides which policy plays which rollout"),
    ],
)
def test_impossible_fork_is_explained(folder: Path, iteration: int, change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_fork(Store(str(folder)), "base", iteration, change)


def test_missing_or_untrained_run_not_forked(copied: Store) -> None:
    with pytest.raises(StoreError, match="nobody"):
        plan_fork(copied, "nobody", 1, CHANGE)
    branch = replay("base", start=2, store=copied.url)
    with pytest.raises(ConfigError, match="made by the flow 'replay'"):
        plan_fork(copied, branch, 1, CHANGE)


def test_changed_code_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "STAGE", Stage(name="reward", version=reward.STAGE.version + 1))
    with pytest.raises(ConfigError, match=r"would not make checkpoint 2 .*\n  reward: was '\d+', is '\d+'"):
        plan_fork(Store(str(folder)), "base", 2, CHANGE)
