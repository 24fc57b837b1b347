"""Streaming sessions: no episode waits for another, rows keep their order, deadlines hold, usage is reported."""

import random

import pyarrow as pa
import pytest

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.costs import take_usage, total, with_usage
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import RolloutConfig, SamplingConfig
from starpo.ragen.core.errors import EngineError
from starpo.schemas.datasets import TURNS
from starpo.schemas.validate import validate

AGENT = AgentConfig(prompt="state", should_show_reward=False)
SAMPLING = SamplingConfig(max_response_tokens=40)
SHARDS = make_episodes([("g0", 1), ("g1", 2), ("g2", 3)], group_size=2, shard_groups=1)


class Slow:
    """Session that always walks right; a request ends after `delay(trajectory, turn)` calls of `finished`."""

    def __init__(self, tokenizer, stop, delay):
        self.ids = [*tokenizer.encode("<think>t</think><answer>Right</answer>", add_special_tokens=False), stop]
        self.delay, self.call, self.turns, self.due, self.log = delay, 0, {}, {}, []

    def submit(self, requests):
        for request in requests:
            name = request.sequence_id
            assert name not in self.due
            self.turns[name] = turn = self.turns.get(name, -1) + 1
            self.due[name] = self.call + self.delay(name, turn)
            self.log.append((self.call, name, turn, request))

    def finished(self):
        self.call += 1
        ended = [name for name, call in self.due.items() if call <= self.call]
        random.Random(self.call).shuffle(ended)
        for name in ended:
            del self.due[name]
        return [(name, Response(self.ids, [-0.5] * len(self.ids), "stop")) for name in ended]

    def usage(self):
        return {"calls": 1.0, "requests": float(len(self.log))}

    def close(self):
        self.due = {}


class SlowEngine:
    is_deterministic, is_continuous = False, True

    def __init__(self, tokenizer, delay):
        self.make = lambda stop: Slow(tokenizer, stop, delay)
        self.sessions = []

    def load(self, folder, checkpoint_key):
        pass

    def session(self, sampling, stop_token_ids):
        self.sessions.append(self.make(stop_token_ids[0]))
        return self.sessions[-1]


def uneven(name, turn):
    return 9 if name.endswith("-1") else 2


@pytest.fixture
def contexts(tokenizer):
    return ContextBuilder(tokenizer, AGENT, 40)


@pytest.fixture
def job(tokenizer_folder, corridor):
    return RolloutJob(tokenizer_folder, "key", corridor(), AGENT, SAMPLING, 4096)


def walk(session, contexts, tokenizer, corridor, **kwargs):
    (episodes,) = make_episodes([("g0", 1), ("g1", 2)], 2, 2)
    return play(session, contexts, tokenizer, corridor(), AGENT, SAMPLING, 4096, episodes, **kwargs)


def test_quick_episodes_overtake_slow_ones(contexts, tokenizer, corridor):
    session = Slow(tokenizer, contexts.stop_token_ids[0], uneven)
    walk(session, contexts, tokenizer, corridor)
    calls = {(name, turn): call for call, name, turn, _ in session.log}
    # g0-0 needs 2 calls per turn, g0-1 9: the quick one's third turn starts before the slow one's first has ended.
    assert calls["g0-0", 2] == 4
    assert calls["g0-1", 1] == 9


def test_rows_independent_of_ending_order(contexts, tokenizer, corridor):
    sessions = [Slow(tokenizer, contexts.stop_token_ids[0], delay) for delay in (uneven, lambda name, turn: 1)]
    tables = [walk(session, contexts, tokenizer, corridor) for session in sessions]
    validate(tables[0], "turns")
    assert tables[0].equals(tables[1])
    assert tables[0]["trajectory_id"].to_pylist()[::3] == ["g0-0", "g0-1", "g1-0", "g1-1"]


def test_seeds_belong_to_trajectory_and_turn(contexts, tokenizer, corridor):
    seeds = []
    for delay in (uneven, lambda name, turn: 1):
        session = Slow(tokenizer, contexts.stop_token_ids[0], delay)
        walk(session, contexts, tokenizer, corridor)
        seeds.append({(name, turn): request.seed for _, name, turn, request in session.log})
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0].values())) == 12


def test_deadline_ends_those_in_flight(contexts, tokenizer, corridor):
    session = Slow(tokenizer, contexts.stop_token_ids[0], lambda name, turn: 1 if name == "g0-0" else 10**9)
    turns = walk(session, contexts, tokenizer, corridor, deadline_s=0.3)
    validate(turns, "turns")
    assert turns["status"].to_pylist() == ["ok"] * 3 + ["timeout"] * 3


def test_continuous_player_gets_everything_at_once(job, tokenizer):
    engine = SlowEngine(tokenizer, uneven)
    turns, usage = take_usage(play_shards(LocalPlayer(engine), job, SHARDS))
    assert len(engine.sessions) == 1
    assert len({name for call, name, *_ in engine.sessions[0].log if call == 0}) == 6
    assert usage == {"calls": 1.0, "requests": 18.0}
    assert turns["trajectory_id"].to_pylist()[::3] == [e.trajectory_id for shard in SHARDS for e in shard]
    assert turns.schema.equals(TURNS.schema, check_metadata=True)


def test_continuous_workers_share_the_groups(job, tokenizer):
    engine = SlowEngine(tokenizer, uneven)
    turns, usage = take_usage(play_shards(LocalPlayer(engine, num_workers=2), job, SHARDS))
    assert sorted(len({name for _, name, *_ in session.log}) for session in engine.sessions) == [2, 4]
    assert usage == {"calls": 2.0, "requests": 18.0}
    assert turns["trajectory_id"].to_pylist()[::3] == [e.trajectory_id for shard in SHARDS for e in shard]


def test_usage_travels_with_rows():
    rows = pa.table({"a": [1]})
    assert with_usage(rows, {}) is rows
    bare, usage = take_usage(with_usage(rows, {"tokens": 3}))
    assert bare.equals(rows, check_metadata=True)
    assert usage == {"tokens": 3}
    assert total([{"a": 1.0}, {"a": 2.0, "b": 3.0}]) == {"a": 3.0, "b": 3.0}


def test_spec_makes_configured_engine():
    spec = EngineSpec.of(RolloutConfig(engine="vllm", max_context_tokens=640, vllm={"max_num_seqs": 7}))
    assert spec.is_continuous
    assert EngineSpec("torch", '{"dtype": "auto"}') == EngineSpec.of(RolloutConfig())
    engine = spec.make(num_threads=1)
    assert isinstance(engine, VLLMEngine)
    assert (engine._config.max_num_seqs, engine._max_context_tokens) == (7, 640)
    with pytest.raises(EngineError, match="no checkpoint is loaded"):
        engine.session(SAMPLING, [1])


def test_other_engines_settings_in_no_key():
    assert not {"vllm", "openai"} & RolloutConfig().model_dump().keys()
    assert RolloutConfig(engine="vllm").model_dump()["vllm"]["max_num_seqs"] == 256
    assert RolloutConfig(vllm={"max_num_seqs": 7}).model_dump()["vllm"]["max_num_seqs"] == 7
