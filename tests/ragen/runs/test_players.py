"""The player of a rollout follows from settings and machine; engines that no stage needs are released."""

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.vllm_engine import VLLMEngineConfig
from starpo.ragen.runs.players import Players
from tests.ragen.runs.adapted import H200


@pytest.fixture
def players() -> Iterator[Players]:
    made = Players()
    yield made
    made.close()


@pytest.mark.parametrize(("has_gpu", "player"), [(False, WorkerPool), (True, LocalPlayer)])
def test_vllm_uses_worker_pool_without_gpu(
    players: Players, monkeypatch: pytest.MonkeyPatch, has_gpu: bool, player: type
) -> None:
    """On the CPU, vLLM fails when another thread of its process continues what one has started."""
    monkeypatch.setattr(VLLMEngineConfig, "python", lambda self: sys.executable)
    monkeypatch.setattr(Device, "here", lambda: H200 if has_gpu else Device())
    assert isinstance(players.player(RolloutConfig(engine="vllm"), 4), player)


def test_server_is_asked_from_here(players: Players) -> None:
    """A policy plays beside its update; nothing is updated where a server's model plays."""
    server = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    assert isinstance(players.player(RolloutConfig(engine="openai", openai=server, staleness=1), 2), LocalPlayer)
    assert isinstance(players.player(RolloutConfig(staleness=1), 1), WorkerPool)


def test_local_store_does_not_use_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = object()
    monkeypatch.setenv("STARPO_POOL", "ray")
    monkeypatch.setattr(Players, "_actors", lambda *_: actors)
    assert Players().player(RolloutConfig(), 2) is actors
    here = Players(are_here=True)
    assert here.player(RolloutConfig(), 2) is not actors
    assert here.is_deterministic(RolloutConfig())
    assert (Players().are_elsewhere, here.are_elsewhere) == (True, False)


@pytest.mark.ci
def test_changed_settings_release_the_player(players: Players, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_THREADS", "2")
    rollout, other = (
        RolloutConfig(),
        RolloutConfig(engine="openai", openai={"base_url": "http://127.0.0.1:9/v1", "model": "m"}),
    )
    first = weakref.ref(players.player(rollout, 2))
    assert first() is players.player(rollout, 2), "kept between stages"
    assert players.is_deterministic(rollout)
    assert first() is players.player(rollout, 2)
    players.player(other, 1)
    gc.collect()
    assert first() is None


def test_runs_in_process_share_no_players(players: Players, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_THREADS", "2")
    other = Players()
    pool, other_pool = players.player(RolloutConfig(), 2), other.player(RolloutConfig(), 2)
    assert isinstance(pool, WorkerPool)
    assert isinstance(other_pool, WorkerPool)
    assert pool is not other_pool
    pool.num_lost = 3
    players.close()
    assert (players.num_lost, other.num_lost) == (3, 0), "lost workers count beyond the end of their pool"
    assert other.player(RolloutConfig(), 2) is other_pool
    other.close()
