"""What an environment does to its worker process: it is named rightly, ends in time, and changes nothing."""

import sys
import time
from dataclasses import replace

import psutil
import pytest

from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.pools import worker
from starpo.ragen.agents.rollout.pools.pool import Pool, WorkerLostError
from starpo.ragen.agents.rollout.pools.worker_pool import _Worker
from starpo.ragen.agents.rollout.shards import play_shards
from starpo.ragen.core.errors import EngineError

PLAYS = """
import os, sys, time
from starpo.ragen.agents.rollout.pools import worker
from starpo.ragen.core.guard import guarded
from starpo.schemas.datasets import TURNS

class Player:
    def play(self, job, episodes):
        with guarded("step"):
            step(job.folder)
        return TURNS.schema.empty_table()

def step(code):
    exec(code)

worker.ENDING_S = 0.2
worker.serve(Player)
"""


class Player(_Worker):
    """A worker process that takes this step for a shard."""

    def __init__(self, step: str = "") -> None:
        super().__init__([sys.executable, "-c", PLAYS])
        self.step = step

    def play(self, job, episodes=()):
        return super().play(replace(job, folder=self.step), episodes)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("os._exit(0)", r"exit status 0, it ended by itself: look at the code of environment 'frozen_lake'"),
        ("os.kill(os.getpid(), 11)", r"exit status -11, it crashed \(SIGSEGV\)"),
        pytest.param(
            "os.kill(os.getpid(), 9)", "status -9, it was killed: is there enough", marks=pytest.mark.thorough
        ),
    ],
)
def test_workers_end_is_explained(job, step, message):
    with pytest.raises(WorkerLostError, match=message):
        Player(step).play(job)


@pytest.mark.ci
def test_exception_is_error_and_worker_stays(job):
    player = Player()
    for step, message in (
        ("raise BaseException('over')", "BaseException: over"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("input()", "EOFError"),
        ("sys.stdin.buffer.read(1); os.write(1, b'noise'); raise ValueError('read nothing')", "read nothing"),
    ):
        player.step = step
        with pytest.raises(EngineError, match=message):
            player.play(job)
    player.step = "pass"
    assert player.play(job).num_rows == 0
    player.kill()


@pytest.mark.ci
@pytest.mark.parametrize(
    "step",
    [
        "sum(iter(int, 1))",  # never leaves native code
        pytest.param("time.sleep(1e6)", marks=pytest.mark.thorough),
        pytest.param("while True: pass", marks=pytest.mark.thorough),
    ],
)
def test_hanging_call_names_its_environment(job, monkeypatch, capfd, step):
    monkeypatch.setenv("STARPO_ENVIRONMENT_S", "0.5")
    message = r"a call of environment 'frozen_lake' took longer than 0.5 s; .* raise STARPO_ENVIRONMENT_S"
    with pytest.raises(WorkerLostError, match=message):
        Player(step).play(job)
    assert "in step" in capfd.readouterr().err  # the stack


@pytest.mark.ci
def test_forked_child_closes_killed_workers_pipe(job):
    """The child of a killed worker lives on, and the run goes on without it."""
    started = time.monotonic()
    with pytest.raises(WorkerLostError, match="exit status -9"):
        Player("os.fork() or time.sleep(90) or os._exit(0); os.kill(os.getpid(), 9)").play(job)
    assert time.monotonic() - started < 60


@pytest.mark.ci
def test_busy_worker_ends_with_parent(job):
    player = Player()
    process = psutil.Process(player._process.pid)
    stream = player._process.stdin
    assert stream is not None
    worker.write_frame(stream, worker.REQUEST, worker.pack_request(replace(job, folder="time.sleep(1e6)"), []))
    time.sleep(0.2)
    stream.close()  # as the end of the parent does
    assert process.wait(30) == 1


@pytest.mark.ci
def test_failure_names_shard_and_environment(job):
    pool = Pool(lambda: Player("os._exit(7)"), 1, is_continuous=False)
    message = (
        r"rollout shard 1 of 1 \(frozen_lake, groups .*\) failed: EngineError: two rollout workers died on the same "
        "shard, the last with exit status 7"
    )
    with pytest.raises(EngineError, match=message):
        play_shards(pool, job, [[Episode("g0", 0, 1, 1, 1)]])
