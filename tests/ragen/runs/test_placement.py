"""The player of a rollout follows from settings and machine; objects that no stage needs are released."""

import gc
import sys
import weakref

import pytest

from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.config.vllm_engine import VLLMEngineConfig
from starpo.ragen.runs import placement
from starpo.ragen.store import Store
from tests.ragen.runs.adapted import FIRST, H200, Adapted


@pytest.mark.parametrize(("has_gpu", "player"), [(False, WorkerPool), (True, LocalPlayer)])
def test_without_a_gpu_vllm_has_its_own_process(monkeypatch: pytest.MonkeyPatch, has_gpu: bool, player: type) -> None:
    """On the CPU, vLLM fails when another thread of its process continues what one has started."""
    monkeypatch.setattr(VLLMEngineConfig, "python", lambda self: sys.executable)
    monkeypatch.setattr(Device, "here", lambda: H200 if has_gpu else Device())
    assert isinstance(placement.shard_player(RolloutConfig(engine="vllm"), 4), player)


def test_with_a_store_of_this_machine_alone_ray_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = object()
    monkeypatch.setenv("STARPO_POOL", "ray")
    monkeypatch.setattr(placement, "_actors", lambda spec, python: actors)
    assert placement.shard_player(RolloutConfig(), 2) is actors
    with placement.playing_here():
        assert placement.shard_player(RolloutConfig(), 2) is not actors
        assert placement.is_deterministic(RolloutConfig())
    assert placement.shard_player(RolloutConfig(), 2) is actors


@pytest.mark.ci
def test_what_was_loaded_for_other_settings_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARPO_THREADS", "2")
    rollout, other = (
        RolloutConfig(),
        RolloutConfig(engine="openai", openai={"base_url": "http://127.0.0.1:9/v1", "model": "m"}),
    )
    first = weakref.ref(placement.shard_player(rollout, 2))
    assert first() is placement.shard_player(rollout, 2), "kept between stages"
    assert placement.is_deterministic(rollout)
    assert first() is placement.shard_player(rollout, 2)
    placement.shard_player(other, 1)
    gc.collect()
    assert first() is None


def test_a_learner_is_closed_when_another_is_asked_for() -> None:
    closed: list[str] = []

    class Ranks:
        """Stand-in for processes that hold a GPU."""

        def close(self) -> None:
            closed.append("ranks")

    loaded = placement._Loaded()
    ranks = loaded.get("zero 3", "learner", Ranks)
    assert loaded.get("zero 3", "learner", Ranks) is ranks
    assert closed == []
    loaded.get("one process", "learner", dict)
    assert closed == ["ranks"]


def test_a_run_that_goes_on_where_another_kind_of_device_began_it_is_told_once(
    adapted_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement._say_if_elsewhere.cache_clear()  # another test may have been told
    said: list[str] = []
    monkeypatch.setattr(placement._log, "warning", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(placement, "learner_for", lambda _: Adapted())
    for here in (Device(), H200, H200):
        monkeypatch.setattr(Device, "here", lambda here=here: here)
        placement.learner_at(adapted_store, FIRST, UpdateConfig(), None)
    (warning,) = said
    assert "was made on a CPU and is trained on an NVIDIA H200 (driver 580.95.05" in warning
    assert "digests will differ" in warning
