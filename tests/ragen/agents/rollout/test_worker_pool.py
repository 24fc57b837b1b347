"""Worker processes: the same rows as in this process, errors keep their type, and nothing is lost with a worker."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools import worker_pool
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.pool import Pool, WorkerLostError
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import ConfigError, EngineError, PolicyError
from starpo.schemas.datasets import TURNS
from starpo.schemas.validate import validate

SHARDS = make_episodes([(f"g{number}", 1000 + number) for number in range(4)], group_size=3, shard_groups=2)


@pytest.fixture(scope="module")
def pool():
    return WorkerPool("torch", 2)


EARLIER = set()


@pytest.fixture(autouse=True, scope="module")
def _children_of_other_tests():
    """Record the existing child processes, zombies included: they belong to other tests."""
    EARLIER.update(child.pid for child in psutil.Process().children())


def workers():
    """Live worker processes that these tests started."""
    children = [child for child in psutil.Process().children() if child.pid not in EARLIER]
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "starpo.ragen.agents.rollout.pools.worker" in child.cmdline()]


@pytest.mark.ci
def test_job_survives_its_text(job):
    assert RolloutJob.from_json(job.to_json()) == job


@pytest.mark.ci
def test_rows_are_those_of_this_process(job, pool):
    here = play_shards(LocalPlayer(TorchEngine(num_threads=1, device="cpu")), job, SHARDS)
    there = play_shards(pool, job, SHARDS)
    validate(there, "turns")
    assert there.num_rows > 12
    assert there.equals(here)
    assert len(workers()) == 2


@pytest.mark.ci
def test_workers_stay(job, pool):
    play_shards(pool, job, SHARDS)
    before = {worker.pid for worker in workers()}
    play_shards(pool, job, SHARDS)
    assert {worker.pid for worker in workers()} == before


@pytest.mark.thorough
def test_dead_worker_replaced_without_loss(job, pool):
    reference = play_shards(pool, job, SHARDS)
    victim, _ = workers()
    os.kill(victim.pid, signal.SIGKILL)
    assert play_shards(pool, job, SHARDS).equals(reference)
    assert victim.pid not in {worker.pid for worker in workers() if worker.is_running()}


@pytest.mark.ci
def test_dead_workers_shard_is_replayed(job, pool, caplog):
    long = replace(job, sampling=SamplingConfig(max_response_tokens=400))
    reference = play_shards(pool, long, SHARDS)
    victim, _ = workers()
    victim.suspend()  # so that it is certainly busy when it is killed
    killer = threading.Timer(0.5, victim.kill)
    killer.start()
    assert play_shards(pool, long, SHARDS).equals(reference)
    assert "a new one plays its shard again" in caplog.text


@pytest.mark.thorough
def test_second_death_of_shard_is_error(job, tmp_path, monkeypatch):
    doomed = tmp_path / "python"
    doomed.write_text("#!/bin/sh\nexit 9\n")
    doomed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(doomed))
    with pytest.raises(EngineError, match="two rollout workers died on the same shard, the last with exit status 9"):
        play_shards(WorkerPool("torch", 1), job, SHARDS)


def test_worker_hanging_at_end_is_lost(job, monkeypatch):
    monkeypatch.setattr(worker_pool, "ENDING_S", 0.2)
    worker = worker_pool._Worker([sys.executable, "-c", "import os, time; os.close(1); time.sleep(60)"])
    with pytest.raises(WorkerLostError, match="exit status -9"):
        worker.play(job, [])
    assert not worker.is_alive


@pytest.mark.ci
def test_errors_keep_their_type(job, pool, tmp_path):
    with pytest.raises(ConfigError, match=r"raise rollout.max_context_tokens"):
        play_shards(pool, replace(job, max_context_tokens=16), SHARDS)
    with pytest.raises(EngineError, match=r"shard .* failed: PolicyError: ") as caught:
        play_shards(pool, replace(job, folder=str(tmp_path / "nowhere"), checkpoint_key="other"), SHARDS)
    assert isinstance(caught.value.__cause__, PolicyError)
    assert play_shards(pool, job, SHARDS).num_rows > 12


@pytest.mark.thorough
def test_stop_ends_shards_at_work(job, pool):
    play_shards(pool, job, SHARDS)
    for worker in workers():
        worker.suspend()
    stopper = threading.Timer(0.5, pool.stop)
    stopper.start()
    started = time.monotonic()
    with pytest.raises(EngineError, match="was stopped"):
        play_shards(pool, job, SHARDS)
    assert time.monotonic() - started < 30
    assert play_shards(pool, job, SHARDS).num_rows > 12


@pytest.mark.ci
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_workers_keep_freed_memory_by_default(job, pool):
    play_shards(pool, job, SHARDS)
    assert ["hugetlb=1" in worker.environ()["GLIBC_TUNABLES"] for worker in workers()] == [True, True]


@pytest.mark.thorough
def test_environments_tunables_are_left_alone(job, monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")
    others = {worker.pid for worker in workers()}
    pool = WorkerPool("torch", 1)
    assert play_shards(pool, job, SHARDS).num_rows
    (worker_process,) = [worker for worker in workers() if worker.pid not in others]
    assert worker_process.environ()["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=0"
    pool.stop()


@pytest.mark.thorough
def test_workers_end_with_their_parent(job):
    code = (
        "import sys; from starpo.ragen.agents.rollout.job import RolloutJob; "
        "from starpo.ragen.agents.rollout.shards import *; "
        "from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool; "
        "shards = make_episodes([('g0', 1)], 2, 1); "
        "play_shards(WorkerPool('torch', 1), RolloutJob.from_json(sys.argv[1]), shards); "
        "import psutil, os, signal; print(psutil.Process().children()[0].pid, flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code, job.to_json()], stdout=subprocess.PIPE, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while psutil.pid_exists(int(parent.stdout)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(parent.stdout))


class Idle:
    """Worker that only waits until another one plays too."""

    is_alive = True
    both_play = threading.Barrier(2)

    def play(self, job, episodes):
        self.both_play.wait(10)
        return TURNS.schema.empty_table()

    def kill(self):
        self.is_alive = False


def test_closed_pool_ends_workers_and_restarts(job):
    started = []

    def start():
        started.append(Idle())
        return started[-1]

    pool = Pool(start, 2, is_continuous=False, advice="")
    play_shards(pool, job, SHARDS)
    pool.close()
    assert [worker.is_alive for worker in started] == [False, False]
    play_shards(pool, job, SHARDS)
    assert [worker.is_alive for worker in started] == [False, False, True, True]


def test_worker_starting_during_stop_plays_nothing():
    played, is_starting, is_stopped = [], threading.Event(), threading.Event()

    class Late(Idle):
        def play(self, job, episodes):
            played.append(episodes)
            return TURNS.schema.empty_table()

    def start():
        is_starting.set()
        is_stopped.wait()
        return Late()

    pool = Pool(start, 1, is_continuous=False, advice="")
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(pool.play, None, SHARDS[0])
        is_starting.wait()
        pool.stop()
        is_stopped.set()
        with pytest.raises(EngineError, match="another shard has failed, so this one was stopped"):
            future.result()
    assert played == []
    assert pool.play(None, SHARDS[1]).num_rows == 0
    assert played == [SHARDS[1]]
