"""Actors on a real Ray: the same rows as in this process for any number of actors, no copies, no losses."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.device import Device
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.core.errors import ConfigError, EngineError
from starpo.ragen.core.registry import ENGINES
from starpo.schemas.digest import content_digest

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'starpo[ray]')"),
]

SHARDS = make_episodes([(f"g{number}", 1000 + number) for number in range(6)], group_size=3, shard_groups=1)
TORCH = EngineSpec("torch")

SLEEPER = '''
"""An engine that hangs as long as a file is there, and then is the torch engine."""
import time
from pathlib import Path
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from tests.examples import put_folder


class Sleeper(TorchEngine):
    def __init__(self, num_threads=None, *, file):
        super().__init__(num_threads)
        self.file = Path(file)

    def session(self, sampling, stop_token_ids):
        if self.file.exists():
            self.file.unlink()
            time.sleep(3600)
        return super().session(sampling, stop_token_ids)
'''


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """Local Ray, as started by `RayPool`, whose actors can import the engine `sleeper`."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "sleeper_engine.py").write_text(SLEEPER)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", f"{folder}:{os.environ.get('PYTHONPATH', '')}")
        patch.syspath_prepend(str(folder))
        from starpo.ragen.agents.rollout.pools.ray_cluster import connect

        ray = connect(num_cpus=2)
        yield ray
        ray.shutdown()


@pytest.fixture(scope="module")
def reference(job):
    return play_shards(LocalPlayer(TorchEngine(num_threads=1, device="cpu")), job, SHARDS)


@pytest.fixture(scope="module")
def pool(ray):
    return pool_of(2)


def pool_of(num_actors, spec=TORCH, **settings):
    from starpo.ragen.agents.rollout.pools.ray_pool import RayPool

    return RayPool(spec, RayRuntime(actors=num_actors, actor_cpus=0.2, **settings), num_threads=2)


def actors():
    """Processes of live actors; at least one."""
    family = psutil.Process().children(recursive=True)
    processes = [child for child in family if "ShardActor" in _command(child)]
    assert processes
    return processes


def _command(process: psutil.Process) -> str:
    """Command line of a process; empty if it has ended."""
    try:
        return " ".join(process.cmdline()) if process.is_running() else ""
    except psutil.NoSuchProcess:  # also raised for a zombie
        return ""


@pytest.mark.thorough
@pytest.mark.parametrize("num_actors", [1, 2])
def test_digest_independent_of_actor_count(pool, job, reference, num_actors):
    turns = play_shards(pool if num_actors == 2 else pool_of(num_actors), job, SHARDS)
    assert turns.equals(reference)
    assert content_digest(turns) == content_digest(reference)


@pytest.mark.thorough
def test_actors_stay(job, pool, reference):
    assert play_shards(pool, job, SHARDS).equals(reference)
    before = {actor.pid for actor in actors()}
    assert play_shards(pool, job, SHARDS).equals(reference)
    assert {actor.pid for actor in actors()} == before
    assert pool.is_deterministic


@pytest.mark.thorough
def test_rows_read_where_actor_wrote(job, pool):
    """All buffers are in memory shared with Ray's object store; small tables, up to 100 kB, are passed by value."""
    (episodes,) = make_episodes([(f"g{number}", number) for number in range(60)], group_size=8, shard_groups=60)
    turns = pool.play(job, episodes)
    assert turns.nbytes > 200_000
    shared = [
        tuple(int(address, 16) for address in line.split()[0].split("-"))
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "plasma" in line or "/dev/shm" in line
    ]
    buffers = [
        b for column in turns.columns for chunk in column.chunks for b in chunk.buffers() if b is not None and b.size
    ]
    assert len(buffers) > 30
    assert all(any(low <= buffer.address < high for low, high in shared) for buffer in buffers)
    assert not any(buffer.is_mutable for buffer in buffers)


@pytest.mark.thorough
def test_dead_idle_actor_is_replaced(job, pool, reference):
    play_shards(pool, job, SHARDS)
    victims = actors()
    for victim in victims:
        victim.kill()
    psutil.wait_procs(victims, timeout=10)
    assert play_shards(pool, job, SHARDS).equals(reference)
    assert not {victim.pid for victim in victims} & {actor.pid for actor in actors()}


@pytest.mark.thorough
def test_lost_actors_shard_is_replayed(job, pool, reference, caplog):
    play_shards(pool, job, SHARDS)
    victims = actors()
    num_lost = pool.num_lost
    for victim in victims:
        victim.suspend()  # so that it is certainly busy when it is killed
    killer = threading.Timer(0.5, lambda: [victim.kill() for victim in victims])
    killer.start()
    assert play_shards(pool, job, SHARDS).equals(reference)
    assert pool.num_lost > num_lost
    assert "a new one plays its shard again" in caplog.text


@pytest.mark.thorough
def test_hung_actor_replaced_after_deadline(ray, job, reference, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(ENGINES, "sleeper", "sleeper_engine:Sleeper")
    (tmp_path / "sleep").touch()
    spec = EngineSpec("sleeper", f'{{"file": "{tmp_path / "sleep"}"}}')
    started = time.monotonic()
    hung = pool_of(1, spec, shard_s=6)
    assert play_shards(hung, job, SHARDS).equals(reference)
    assert time.monotonic() - started < 120
    assert hung.num_lost == 1
    assert "no answer within the 6 s that it had for its shard" in caplog.text


@pytest.mark.thorough
def test_stop_ends_shards_at_work(job, pool, reference):
    play_shards(pool, job, SHARDS)
    for actor in actors():
        actor.suspend()
    stopper = threading.Timer(0.5, pool.stop)
    stopper.start()
    started = time.monotonic()
    with pytest.raises(EngineError, match="was stopped"):
        play_shards(pool, job, SHARDS)
    assert time.monotonic() - started < 60
    assert play_shards(pool, job, SHARDS).equals(reference)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actor_gpus": 1}, "room for 0 of 2 .*CPU 0.2, GPU 1 on one node.* CPU 2, GPU 0"),
        ({"actor_resources": {"rollout": 1}}, "room for 0 of 2 .*rollout 1 on one node.* CPU 2, rollout 0"),
    ],
)
def test_missing_resources_reported_before_waiting(ray, settings, message):
    started = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        pool_of(2, **settings)
    assert time.monotonic() - started < 5


def test_too_few_gpus_for_tensor_parallel():
    with pytest.raises(
        ConfigError, match="split over 4 GPUs, and a rollout actor asks for 2: set STARPO_RAY_ACTOR_GPUS=4"
    ):
        pool_of(1, EngineSpec("vllm", '{"tensor_parallel_size": 4}'), actor_gpus=2)


@pytest.mark.ci
def test_actor_without_room_is_given_up(ray, job):
    """The cluster is declared to autoscale but does not grow."""
    waiting = pool_of(1, actor_resources={"rollout": 1}, autoscales=True, start_s=1)
    with pytest.raises(EngineError, match=r"no answer within the 1 s that it had to start"):
        play_shards(waiting, job, SHARDS)


@pytest.mark.ci
def test_other_node_reads_checkpoint_from_store(job, tmp_path):
    """An actor on another node than the caller reads the store; if it cannot, its error says so."""
    from starpo.ragen.agents.rollout.pools.ray_pool import ShardActor
    from starpo.ragen.agents.rollout.pools.worker import FAILURE, ROWS
    from starpo.ragen.store import Facts, Store
    from starpo.schemas.manifest import Stage
    from tests.examples import put_folder

    store = Store(str(tmp_path / "store"))
    stage = Stage(name="warm_start", version=1)
    put_folder(store, "checkpoint", job.folder, Facts(key="0" * 32, stage=stage, settings={}, inputs={}, seed=0))
    elsewhere = replace(job, folder="/not/on/this/node", checkpoint_key="0" * 32, store_url=store.url)
    assert ShardActor(TORCH, ENGINES["torch"], "another node", Device.here()).load(elsewhere.to_json()) == (ROWS, True)
    alone = replace(elsewhere, store_url=str(tmp_path / "other"))
    kind, failure = ShardActor(TORCH, ENGINES["torch"], "another node", Device.here()).load(alone.to_json())
    assert kind == FAILURE
    assert b"need a store that all of them reach" in failure


@pytest.mark.thorough
def test_actors_end_with_their_caller(job):
    """Actors and Ray end with it; only Ray's two idle agents take a minute to notice that all others have ended."""
    code = (
        "import sys, os, signal, psutil; from starpo.ragen.agents.rollout.job import RolloutJob; "
        "from starpo.ragen.agents.rollout.shards import *; "
        "from starpo.ragen.agents.rollout.pools.ray_pool import RayPool; "
        "from starpo.ragen.agents.rollout.engine_spec import EngineSpec; "
        "from starpo.ragen.config.ray_runtime import RayRuntime; "
        "play_shards(RayPool(EngineSpec('torch'), RayRuntime(actors=1), 1), RolloutJob.from_json(sys.argv[1]), "
        "make_episodes([('g0', 1)], 2, 1)); "
        "children = psutil.Process().children(recursive=True); "
        "print(*[child.pid for child in children if 'Agent' not in ' '.join(child.cmdline())], flush=True); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code, job.to_json()], stdout=subprocess.PIPE, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in parent.stdout.split("\n")[-2].split()]
    assert len(pids) > 3
    deadline = time.monotonic() + 30
    while any(map(is_at_work, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in pids if is_at_work(pid)]


def is_at_work(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # a zombie is only an exit status
    except psutil.NoSuchProcess:
        return False
