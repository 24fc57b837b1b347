"""Generated tokens per second: whole Sokoban episodes with the torch engine, and with transformers' `generate`.

Both play the same rooms through the same loop with the same warm-started policy; only the session differs. The
baseline is what a careful user would write: all live trajectories in one left-padded batch, the full prompt at every
turn, no log-probs, and the better of one thread and all cores. It alternates with the engine, so that other work on the
machine affects both.
"""

import statistics

import pytest

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.imitation import imitate
from tests.benchmarks.generate_session import CORES, GenerateSession, against_generate

NUM_GROUPS, GROUP_SIZE, REPEATS = 24, 16, 7
GROUPS = [(f"g{group}", derive_seed("benchmark", group)) for group in range(NUM_GROUPS)]
ROOMS = SokobanSettings(observation="compact", generator="distance", min_solution=6, max_solution=10)
SAMPLING = SamplingConfig(max_response_tokens=64)
MAX_CONTEXT_TOKENS = 1024
AGENTS = {
    "window": AgentConfig(prompt="state", context="window", window_turns=1, should_show_reward=False),
    "full": AgentConfig(prompt="state", context="full", should_show_reward=False),
}


@pytest.fixture(scope="module", params=AGENTS)
def warm_started(request, tmp_path_factory):
    """Name, agent and folder of a policy that has learnt the format, so that responses end properly."""
    folder = tmp_path_factory.mktemp(request.param)
    agent = AGENTS[request.param]
    imitate(TinyPolicy(), ROOMS, agent, SAMPLING.max_response_tokens, frozenset(), folder)
    return request.param, agent, str(folder)


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_rollout_five_times_transformers_speed(warm_started):
    name, agent, folder = warm_started
    model, tokenizer = load_policy(folder)
    contexts = ContextBuilder(tokenizer, agent, SAMPLING.max_response_tokens)
    workers = WorkerPool("torch", CORES)
    job = RolloutJob(folder, name, ROOMS, agent, SAMPLING, MAX_CONTEXT_TOKENS)

    def by_engine():
        return play_shards(workers, job, make_episodes(GROUPS, GROUP_SIZE, NUM_GROUPS // CORES))

    def by_generate():
        (episodes,) = make_episodes(GROUPS, GROUP_SIZE, NUM_GROUPS)
        session = GenerateSession(model, contexts.stop_token_ids, SAMPLING)
        return play(session, contexts, tokenizer, ROOMS, agent, SAMPLING, MAX_CONTEXT_TOKENS, episodes)

    turns, ratio, words = against_generate(by_engine, by_generate, REPEATS)
    lengths = [len(ids) for ids in turns["response_ids"].to_pylist()]
    prompts = [len(ids) for ids in turns["prompt_ids"].to_pylist()]
    print(
        f"\n{name}: {turns.num_rows} turns, prompts of {statistics.mean(prompts):.0f} new tokens, responses of "
        f"{statistics.mean(lengths):.1f} (at most {max(lengths)})\n"
        f"{words}"
    )
    assert ratio >= 5
