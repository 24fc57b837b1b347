"""Shards: seeds depend only on group and member, rows on no worker, and a failure stops the other shards."""

import threading
import time
from concurrent.futures import wait
from dataclasses import replace

import pyarrow.compute as pc
import pytest

from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.shards import _dealt, make_episodes, play_shards
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core import seeding
from starpo.ragen.core.errors import ConfigError, EngineError, EnvironmentFault
from starpo.ragen.learning.metrics.iteration import rollout_metrics
from starpo.schemas.datasets import TURNS
from starpo.schemas.validate import validate
from tests.ragen.agents.rollout.conftest import Corridor

AGENT = AgentConfig(prompt="state")
SAMPLING = SamplingConfig(max_response_tokens=60)
GROUPS = [(f"g{number}", 1000 + number) for number in range(5)]
LEFT, RIGHT = ("<think>t</think><answer>Left</answer>", "<think>t</think><answer>Right</answer>")


def script(name: str, turn: int) -> str:
    """Return a response that depends on the trajectory and the turn."""
    return (LEFT, RIGHT, "nonsense")[(len(name) * 7 + int(name[1]) + int(name[-1]) + turn) % 3]


def run(engine, tokenizer_folder, environment, shards, num_workers=2, on_shard=None, max_context_tokens=4096):
    job = RolloutJob(tokenizer_folder, "some-key", environment, AGENT, SAMPLING, max_context_tokens)
    return play_shards(LocalPlayer(engine, num_workers), job, shards, on_shard)


def test_groups_assigned_whole_in_order():
    shards = make_episodes(GROUPS, group_size=2, shard_groups=2)
    assert [[(e.group_id, e.member) for e in shard] for shard in shards] == [
        [("g0", 0), ("g0", 1), ("g1", 0), ("g1", 1)],
        [("g2", 0), ("g2", 1), ("g3", 0), ("g3", 1)],
        [("g4", 0), ("g4", 1)],
    ]
    assert make_episodes([], group_size=2, shard_groups=2) == []


def test_members_share_only_initial_state():
    (shard,) = make_episodes(GROUPS[:1], group_size=16, shard_groups=1)
    assert {episode.env_seed for episode in shard} == {1000}
    assert len({episode.dynamics_seed for episode in shard}) == 16
    assert len({episode.sampling_seed for episode in shard}) == 16
    assert shard[3].dynamics_seed == seeding.dynamics_seed(1000, 3)
    assert shard[3].sampling_seed == seeding.sampling_seed(1000, 3)


def test_seeds_independent_of_other_play():
    """The reference implementation counted seeds, and restarted the count after a resume."""
    together = {e.trajectory_id: e for shard in make_episodes(GROUPS, 4, 2) for e in shard}
    alone = {e.trajectory_id: e for group in reversed(GROUPS) for shard in make_episodes([group], 4, 1) for e in shard}
    assert together == alone


def test_batches_share_initial_states_and_chance():
    (large,) = make_episodes(GROUPS[:1], group_size=6, shard_groups=1)
    batches = [make_episodes(GROUPS[:1], group_size=2, shard_groups=1, batch=batch)[0] for batch in range(3)]
    seeds = [(e.env_seed, e.dynamics_seed, e.sampling_seed) for episodes in batches for e in episodes]
    assert seeds == [(e.env_seed, e.dynamics_seed, e.sampling_seed) for e in large]
    assert [[e.member for e in episodes] for episodes in batches] == [[0, 1]] * 3


@pytest.mark.parametrize("num_workers", [1, 2, 8])
def test_rows_independent_of_workers_and_order(tokenizer_folder, corridor, scripted_engine, num_workers):
    shards = make_episodes(GROUPS, 2, 1)
    reference = run(scripted_engine(script), tokenizer_folder, corridor(), shards, num_workers=1)

    def overtaken(name: str, turn: int) -> str:
        time.sleep({"g0": 0.02, "g2": 0.01}.get(name[:2], 0.0))  # the first shard is the slowest
        return script(name, turn)

    table = run(scripted_engine(overtaken), tokenizer_folder, corridor(), shards, num_workers)
    validate(table, "turns")
    assert table.equals(reference)
    assert list(dict.fromkeys(table["group_id"].to_pylist())) == [group_id for group_id, _ in GROUPS]


def test_rows_independent_of_shard_size(tokenizer_folder, corridor, scripted_engine):
    tables = [
        run(scripted_engine(script), tokenizer_folder, corridor(), make_episodes(GROUPS, 2, shard_groups))
        for shard_groups in (1, 2, 5)
    ]
    assert tables[0].combine_chunks().equals(tables[1].combine_chunks())
    assert tables[0].combine_chunks().equals(tables[2].combine_chunks())


def test_progress_counted_in_calling_thread(tokenizer_folder, corridor, scripted_engine):
    calls = []
    run(
        scripted_engine(script),
        tokenizer_folder,
        corridor(),
        make_episodes(GROUPS, 1, 2),
        on_shard=lambda done, total: calls.append((done, total, threading.current_thread())),
    )
    assert calls == [(done, 3, threading.main_thread()) for done in (1, 2, 3)]


def test_no_shards_give_no_rows(tokenizer_folder, corridor, scripted_engine):
    table = run(scripted_engine(script), tokenizer_folder, corridor(), [])
    assert table.equals(TURNS.schema.empty_table())


def test_failing_shard_named_and_stops_others(tokenizer_folder, corridor, scripted_engine):
    def failing(name: str, turn: int) -> str:
        if name.startswith("g2"):
            raise MemoryError("no room for the cache")
        time.sleep(0.1)
        return LEFT

    engine = scripted_engine(failing)
    with pytest.raises(
        EngineError, match=r"rollout shard 3 of 5 \(corridor, groups g2 to g2\) failed: MemoryError: no room"
    ):
        run(engine, tokenizer_folder, corridor(), make_episodes(GROUPS, 1, 1), num_workers=3)
    # Three shards had begun, and the failed one's thread may have begun a fourth; the others stopped soon after the
    # failure instead of playing their 5 turns, the last one never began, and all sessions were closed.
    assert len(engine.sessions) < 5
    assert all(session.num_calls <= 3 for session in engine.sessions)
    assert all(session.is_closed for session in engine.sessions)


class Stopped:
    """Player whose first shard fails; the others end once it is stopped, and `stop` waits for their threads to end."""

    num_workers, is_continuous = 2, False

    def __init__(self):
        self.begun, self.threads, self.is_stopped = [], set(), threading.Event()

    def play(self, job, episodes):
        self.begun.append(episodes[0].group_id)
        self.threads.add(threading.current_thread())
        if episodes[0].group_id != "g0":
            self.is_stopped.wait()
        raise MemoryError("no room")

    def stop(self):
        self.is_stopped.set()
        while any(thread.is_alive() for thread in self.threads) and "g3" not in self.begun:
            time.sleep(0.01)


def test_no_shard_begins_after_stop(corridor):
    job = RolloutJob("nowhere", "some-key", corridor(), AGENT, SAMPLING, 4096)
    player = Stopped()
    with pytest.raises(
        EngineError, match=r"rollout shard 1 of 5 \(corridor, groups g0 to g0\) failed: MemoryError: no room"
    ):
        play_shards(player, job, make_episodes(GROUPS, 1, 1))
    assert not {"g3", "g4"} & set(player.begun)


def test_no_room_for_response_names_setting(tokenizer_folder, corridor, scripted_engine):
    with pytest.raises(
        ConfigError, match=r"70 tokens needed, max_context_tokens = 69; raise rollout.max_context_tokens"
    ):
        run(scripted_engine(script), tokenizer_folder, corridor(), make_episodes(GROUPS, 1, 1), max_context_tokens=69)


def test_group_without_room_ends_no_other(tokenizer_folder, corridor, scripted_engine, monkeypatch):
    monkeypatch.setattr(Corridor, "render", lambda self: "P " * (100 if self.seed == 1002 else 1))
    tables = [
        run(scripted_engine(script), tokenizer_folder, corridor(), make_episodes(GROUPS, 2, n), max_context_tokens=130)
        for n in (1, 5)
    ]
    assert tables[0].combine_chunks().equals(tables[1].combine_chunks())
    silent = tables[0].filter(pc.equal(tables[0]["finish_reason"], "none")).filter(pc.field("turn") == 0)
    assert silent["group_id"].unique().to_pylist() == ["g2"]


def test_interrupt_stops_all_shards(tokenizer_folder, corridor, scripted_engine):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    has_begun = threading.Event()

    def overtaken(name: str, turn: int) -> str:
        if name.startswith("g1"):
            has_begun.set()
            time.sleep(0.1)
        else:
            assert has_begun.wait(20)
        return LEFT

    engine = scripted_engine(overtaken)
    with pytest.raises(KeyboardInterrupt):
        run(engine, tokenizer_folder, corridor(), make_episodes(GROUPS, 1, 1), num_workers=2, on_shard=interrupt)
    begun = [session for session in engine.sessions if session.requests]  # another one may have been about to begin
    (slow,) = (session for session in begun if session.requests[0].sequence_id.startswith("g1"))
    assert slow.num_calls < 5
    assert all(session.is_closed for session in engine.sessions)


def failing_step(error, share):
    """A step that raises for this share of the members."""
    original = Corridor.step

    def step(self, action):
        if self.seed % 10 < 10 * share:
            raise error
        return original(self, action)

    return step


EPISODES = [(f"g{number}", number) for number in range(10)]


@pytest.mark.parametrize("error", [SystemExit(0), RuntimeError("no floor")])
def test_few_failed_episodes_reported_and_excluded(
    scripted_engine, tokenizer_folder, corridor, monkeypatch, caplog, error
):
    monkeypatch.setattr(Corridor, "step", failing_step(error, 0.3))
    turns = run(scripted_engine(lambda name, turn: RIGHT), tokenizer_folder, corridor(), make_episodes(EPISODES, 1, 4))
    failed = turns.filter(pc.equal(turns["status"], "env_error"))
    assert failed["group_id"].to_pylist() == ["g0", "g1", "g2"]
    assert rollout_metrics(turns)["rollout/env_error_share"] == 0.3
    warning = "environment 'corridor' failed in 3 of 10 trajectories that acted, most often (3 times) with "
    assert f"{warning}{type(error).__name__}" in caplog.text


@pytest.mark.parametrize(("share", "script"), [(0.6, RIGHT), (1.0, RIGHT), (1.0, None)])
def test_failing_environment_refuses_rollout(scripted_engine, tokenizer_folder, corridor, monkeypatch, share, script):
    """Also if it fails whenever it is acted in, and most responses are malformed and do not act."""
    monkeypatch.setattr(Corridor, "step", failing_step(RuntimeError("no floor"), share))
    answer = (lambda name, turn: script) if script else (lambda name, turn: RIGHT if name < "g3" else "nonsense")
    num_failed, num_acted = (3, 3) if script is None else (round(10 * share), 10)
    with pytest.raises(
        EnvironmentFault, match=rf"failed in {num_failed} of {num_acted} .* RuntimeError: no floor \(in "
    ):
        run(scripted_engine(answer), tokenizer_folder, corridor(), make_episodes(EPISODES, 1, 4))


def test_oversized_observation_is_refused(scripted_engine, tokenizer_folder, corridor, monkeypatch):
    monkeypatch.setattr(Corridor, "render", lambda self: "x" * 10_000_000)
    with pytest.raises(EnvironmentFault, match="an observation has 10000000 characters, at most 1000000 are accepted"):
        run(scripted_engine(lambda name, turn: RIGHT), tokenizer_folder, corridor(), make_episodes(EPISODES, 1, 4))


def test_step_exception_names_the_environment(scripted_engine, tokenizer_folder, corridor, monkeypatch):
    class Over(BaseException):
        pass

    def step(self, action):
        raise Over("all over")

    monkeypatch.setattr(Corridor, "step", step)
    with pytest.raises(EngineError, match=r"shard 1 of 1 \(corridor, groups g0 to g0\) failed: Over: all over"):
        run(scripted_engine(lambda name, turn: RIGHT), tokenizer_folder, corridor(), make_episodes(GROUPS[:1], 2, 1))


@pytest.mark.ci
def test_hanging_step_ends_the_rollout(scripted_engine, tokenizer_folder, corridor, monkeypatch):
    def step(self, action):
        while True:
            time.sleep(0.01)

    monkeypatch.setenv("STARPO_ENVIRONMENT_S", "0.5")
    monkeypatch.setattr(Corridor, "step", step)
    started = time.monotonic()
    with pytest.raises(EngineError, match=r"a call of environment 'corridor' has taken longer than 0.5 s"):
        run(scripted_engine(lambda name, turn: RIGHT), tokenizer_folder, corridor(), make_episodes(GROUPS[:2], 2, 1))
    assert time.monotonic() - started < 10
    for thread in threading.enumerate():
        if thread.name.startswith("shard"):
            thread.join(10)  # the loop is interrupted, so nothing hangs at the end of the process
            assert not thread.is_alive()


def test_unstarted_greedy_member_has_group_state(job, corridor):
    lasting = replace(job, environment=corridor(fault="last_reset"))
    (shard,) = make_episodes([("g0", 1)], group_size=2, shard_groups=2, num_greedy=1)
    shard = [replace(episode, dynamics_seed=number) for number, episode in enumerate(shard)]
    turns = LocalPlayer(TorchEngine(num_threads=1, device="cpu")).play(lasting, shard)
    validate(turns, "turns")
    rows = turns.to_pylist()
    assert {row["status"] for row in rows if row["member"] == 2} == {"env_error"}
    assert len({row["initial_state_digest"] for row in rows}) == 1


def test_merged_shards_are_bounded() -> None:
    shards = make_episodes([(f"g{number}", number) for number in range(700)], group_size=8, shard_groups=2)
    merged = _dealt(shards, 2, 2048)
    assert [len(shard) for shard in merged] == [2048, 2048, 1504]
    assert [episode for shard in merged for episode in shard] == [episode for shard in shards for episode in shard]
    assert [len(shard) for shard in _dealt(shards[:4], 2, 2048)] == [32, 32]


class Noting:
    """Implements `ShardKeeper`: has some shards, and notes which are kept."""

    def __init__(self, rows=None):
        self.rows, self.kept = rows or {}, []

    def recall(self, shards):
        return self.rows

    def keep(self, episodes, turns):
        self.kept.append(episodes[0].group_id)


def test_recalled_shards_are_not_played(tokenizer_folder, corridor, scripted_engine):
    shards, played, calls = make_episodes(GROUPS, 2, 1), [], []
    whole = run(scripted_engine(script), tokenizer_folder, corridor(), shards)

    def noted(name: str, turn: int) -> str:
        played.append(name[:2])
        return script(name, turn)

    keeper = Noting({number: whole.filter(pc.equal(whole["group_id"], f"g{number}")) for number in (0, 3)})
    job = RolloutJob(tokenizer_folder, "some-key", corridor(), AGENT, SAMPLING, 4096)
    player = LocalPlayer(scripted_engine(noted), 1)
    assert play_shards(player, job, shards, lambda *call: calls.append(call), keeper=keeper).equals(whole)
    assert set(played) == {"g1", "g2", "g4"}
    assert sorted(keeper.kept) == ["g1", "g2", "g4"]  # in the order in which they end
    assert calls == [(2, 5), (3, 5), (4, 5), (5, 5)]


def test_shards_that_mostly_failed_not_kept(tokenizer_folder, corridor, scripted_engine):
    """What fails everywhere may be mended outside of the code, so that its rows must not come back."""
    keeper = Noting()
    job = RolloutJob(tokenizer_folder, "some-key", corridor(fault="reset"), AGENT, SAMPLING, 4096)
    with pytest.raises(EnvironmentFault, match="no corridor today"):
        play_shards(LocalPlayer(scripted_engine(script), 1), job, make_episodes(GROUPS, 2, 1), keeper=keeper)
    assert keeper.kept == []


def test_shards_ended_beside_failure_are_kept(tokenizer_folder, corridor, scripted_engine, monkeypatch):
    def failures_first(futures):
        wait(futures)
        yield from sorted(futures, key=lambda future: future.exception() is None)

    def one_fails(name: str, turn: int) -> str:
        if name.startswith("g1"):
            raise RuntimeError("the cable was pulled")
        return script(name, turn)

    monkeypatch.setattr("starpo.ragen.agents.rollout.shards._completed", failures_first)
    keeper = Noting()
    job = RolloutJob(tokenizer_folder, "some-key", corridor(), AGENT, SAMPLING, 4096)
    with pytest.raises(EngineError, match="the cable was pulled"):
        play_shards(LocalPlayer(scripted_engine(one_fails), 2), job, make_episodes(GROUPS[:3], 1, 1), keeper=keeper)
    assert keeper.kept == ["g0", "g2"]
