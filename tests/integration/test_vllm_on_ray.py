"""Rollout actors on a real Ray cluster, each with a real vLLM on the CPU, in the interpreter of `make vllm`."""

from importlib.util import find_spec

import pytest

from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.schemas.validate import validate

pytestmark = [
    pytest.mark.usefixtures("ray_shut_down"),
    pytest.mark.thorough,
    pytest.mark.vllm,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'starpo[ray]')"),
]

SHARDS = make_episodes([(f"g{number}", 1000 + number) for number in range(4)], group_size=4, shard_groups=2)
AGENT = AgentConfig(prompt="state", max_turns=5, max_actions=10, max_actions_per_turn=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, tokenizer = str(tmp_path_factory.mktemp("policy")), make_tokenizer()
    make_model(TinyPolicy(num_layers=2), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("num_parallel", [1, 2])
def test_actor_plays_whole_or_split_vllm(vllm_interpreter, folder, num_parallel):
    """Before any play, the probe compares its log-probs with those of transformers (tolerance 0.001 nats)."""
    from starpo.ragen.agents.rollout.pools.ray_pool import RayPool

    vllm = {"tensor_parallel_size": num_parallel}
    rollout = RolloutConfig(engine="vllm", max_context_tokens=512, max_response_tokens=12, vllm=vllm)
    job = RolloutJob(folder, "key", FrozenLakeSettings(), AGENT, rollout.sampling, rollout.max_context_tokens)
    pool = RayPool(EngineSpec.of(rollout), RayRuntime(actors=1, actor_cpus=0.1), 2, vllm_interpreter)
    turns, usage = take_usage(play_shards(pool, job, SHARDS))
    validate(turns, "turns")
    trajectories = {episode.trajectory_id for shard in SHARDS for episode in shard}
    assert set(turns["trajectory_id"].to_pylist()) == trajectories
    assert usage["response_tokens"] == sum(map(len, turns["response_ids"].to_pylist())) > 0
    assert not pool.is_deterministic
    assert pool.num_lost == 0
