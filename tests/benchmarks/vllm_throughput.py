"""Measurements for `test_vllm.py`, in vLLM's own environment; the last line of the output is JSON.

    python vllm_throughput.py FOLDER '{"num_groups": 12, "max_response_tokens": 32, ...}'

Episodes are played through the rollout engine. Then vLLM alone, on the same engine object, generates as many tokens for
the same prompts, without log-probs, seeds or stop tokens: all at once, and turn after turn, as episodes need them.
Optional settings: `rooms`, `agent`, `engine` (others than the defaults), `turns` (a file for those last played).
"""

import json
import sys
import time

import pyarrow.parquet as pq
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.shards import make_episodes
from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings

ROOMS = {"observation": "compact", "generator": "distance", "min_solution": 6, "max_solution": 10}
AGENT = {"prompt": "state", "context": "full", "should_show_reward": False}


def waves_of(turns):
    """Return, per turn number, the prompts (whole contexts) and the lengths of their responses."""
    waves, context = {}, []
    for row in turns.to_pylist():
        context = row["prompt_ids"] if row["is_context_start"] else context + row["prompt_ids"]
        if row["response_ids"]:
            waves.setdefault(row["turn"], []).append((context, len(row["response_ids"])))
        context = context + row["response_ids"]
    return [waves[turn] for turn in sorted(waves)]


def generate(llm, requests):
    """Run vLLM's own loop of offline generation."""
    for number, (prompt, num_tokens) in enumerate(requests):
        params = SamplingParams(
            max_tokens=num_tokens, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY
        )
        llm.add_request(f"offline-{number}", {"prompt_token_ids": prompt}, params)
    while llm.has_unfinished_requests():
        llm.step()


def main(
    folder,
    num_groups,
    group_size,
    max_response_tokens,
    max_context_tokens,
    repeats,
    rooms=ROOMS,
    agent=AGENT,
    engine=None,
    turns=None,
):
    groups = [(f"g{group}", derive_seed("benchmark", group)) for group in range(num_groups)]
    (episodes,) = make_episodes(groups, group_size, num_groups)
    sampling = SamplingConfig(max_response_tokens=max_response_tokens)
    world, agent = SokobanSettings(**rooms), AgentConfig(**agent)
    engine = VLLMEngine(num_threads=1, max_context_tokens=max_context_tokens, **engine or {})
    speeds = {"engine": [], "vLLM, all at once": [], "vLLM, turn after turn": []}
    for repeat in range(repeats + 1):  # the first is not counted
        key = f"key-{repeat}"
        engine.load(folder, key)
        job = RolloutJob(folder, key, world, agent, sampling, max_context_tokens)
        started = time.perf_counter()
        played = LocalPlayer(engine).play(job, episodes)
        seconds = {"engine": time.perf_counter() - started}
        waves = waves_of(played)
        num_tokens = sum(number for wave in waves for _, number in wave)
        plans = {"vLLM, all at once": [[request for wave in waves for request in wave]], "vLLM, turn after turn": waves}
        for name, plan in plans.items():
            engine._llm.reset_prefix_cache()
            started = time.perf_counter()
            for requests in plan:
                generate(engine._llm, requests)
            seconds[name] = time.perf_counter() - started
        for name, elapsed in seconds.items():
            speeds[name].append(num_tokens / elapsed)
    if turns is not None:
        pq.write_table(played, turns)
    print(json.dumps({name: values[1:] for name, values in speeds.items()}))


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
