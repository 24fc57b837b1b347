"""The warm start of the default preset: how long it takes, and how well what comes out plays rooms it never saw."""

import time

import pytest

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.agents.evaluation.summary import summarise
from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.torch_engine import TorchEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import dynamics_seed, sampling_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.imitation import imitate

SOKOBAN = SokobanSettings(observation="compact", generator="distance", min_solution=6, max_solution=10)
AGENT = AgentConfig(prompt="state", context="window", window_turns=1, should_show_reward=False)
MAX_RESPONSE_TOKENS = 26
SEEDS = (0, 1, 2)


@pytest.mark.benchmark
@pytest.mark.parametrize("seed", SEEDS)
def test_the_warm_start_is_quick_and_ends_mediocre(seed: int, tmp_path) -> None:
    panel = make_panel(SOKOBAN, 256, 1_000_003)
    policy = TinyPolicy(demonstration_skill=0.2, seed=seed)
    started, used = time.perf_counter(), time.process_time()
    headline = imitate(policy, SOKOBAN, AGENT, MAX_RESPONSE_TOKENS, panel.excluded_digests, tmp_path)
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    results = {temperature: evaluate(str(tmp_path), panel.env_seeds, temperature) for temperature in (0.2, 0.5, 1.0)}
    successes = ", ".join(f"{r['success']:.3f} at temperature {t}" for t, r in results.items())
    print(
        f"\nseed {seed}: {wall:.1f} s ({cpu:.1f} s of CPU), loss {headline['loss']:.3f}, the player itself "
        f"{headline['demonstration_success']:.3f}; success {successes}; format {results[0.5]['format_ok']:.3f}"
    )
    assert 0.15 <= results[0.5]["success"] <= 0.28  # a binomial of 256 around 0.2 has a standard deviation of 0.025
    assert results[0.5]["format_ok"] > 0.98


def evaluate(folder: str, env_seeds: tuple[int, ...], temperature: float) -> dict[str, float]:
    tokenizer, engine = load_tokenizer(folder), TorchEngine(num_threads=1)
    engine.load(folder, folder)
    contexts = ContextBuilder(tokenizer, AGENT, MAX_RESPONSE_TOKENS)
    sampling = SamplingConfig(temperature=temperature, max_response_tokens=MAX_RESPONSE_TOKENS)
    episodes = [
        Episode(f"g{number}", 0, seed, dynamics_seed(seed, 0), sampling_seed(seed, 0))
        for number, seed in enumerate(env_seeds)
    ]
    session = engine.session(sampling, contexts.stop_token_ids)
    turns = play(session, contexts, tokenizer, SOKOBAN, AGENT, sampling, 2048, episodes)
    session.close()
    metrics = summarise(fold_episodes(turns, "sokoban", temperature))
    return {name.rsplit("/", 1)[1]: value for name, value in metrics.items()}
