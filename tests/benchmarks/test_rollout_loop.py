"""What the rollout loop itself costs, beside generation: prompts, parsing, environment steps, columns."""

import statistics
import time

import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.parser import format_response
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.local_player import LocalPlayer
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.sokoban.environment import SokobanSettings

GENERATED_TOKENS_PER_S = 40_000  # about what the torch engine makes with the tiny policy, a thread
ITERATION = [(f"g{group}", derive_seed("benchmark", group)) for group in range(24)]
COMPACT = SokobanSettings(observation="compact", generator="distance")


class InstantEngine:
    """Answers at once, with walks of two steps that differ between trajectories."""

    is_deterministic = True
    is_continuous = False

    def __init__(self, tokenizer) -> None:
        agent = AgentConfig()
        steps = ["Up", "Down", "Left", "Right"]
        self.num_tokens = 0
        self.answers = []
        for first in steps:
            for second in steps:
                text = format_response("box up 1 left 2 goal down 1 right 3", [first, second], agent)
                ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
                self.answers.append(Response(ids, [-0.5] * len(ids), "stop"))

    def load(self, folder, checkpoint_key):
        pass

    def session(self, sampling, stop_token_ids):
        return self

    def generate(self, requests):
        responses = [self.answers[request.seed % len(self.answers)] for request in requests]
        self.num_tokens += sum(len(response.token_ids) for response in responses)
        return responses

    def close(self):
        pass


def stepping_s(turns) -> float:
    """CPU time of the same environments' resets, steps and digests alone."""
    started = time.process_time()
    for row in turns.select(["turn", "env_seed", "dynamics_seed", "executed_actions"]).to_pylist():
        if row["turn"] == 0:
            environment = make(COMPACT)
            environment.reset(seed=row["env_seed"], dynamics_seed=row["dynamics_seed"])
        for action in row["executed_actions"]:
            environment.step(action)
        environment.state_digest()
    return time.process_time() - started


@pytest.mark.benchmark
@pytest.mark.parametrize(("prompt", "limit"), [("state", 0.1), ("full", 0.2)])
def test_loop_costs_a_small_share_of_generation(prompt, limit, tmp_path):
    """The loop's own CPU time for 24 x 16 episodes, median of 5, against that of generating their responses.

    The tiny policy's own prompt is 'state'; with 'full' its tokenizer of few merges has thousands of bytes to cut up.
    """
    tokenizer = make_tokenizer()
    agent = AgentConfig(prompt=prompt, context="window" if prompt == "state" else "full")
    tokenizer.save_pretrained(tmp_path)
    job = RolloutJob(str(tmp_path), "none", COMPACT, agent, SamplingConfig(), 65536)
    shards = make_episodes(ITERATION, 16, 4)
    loop_times_s, environment_times_s = [], []
    for _ in range(5):
        engine = InstantEngine(tokenizer)
        started = time.process_time()
        turns = play_shards(LocalPlayer(engine), job, shards)
        total_s = time.process_time() - started
        environment_times_s.append(stepping_s(turns))
        loop_times_s.append(total_s - environment_times_s[-1])
    loop_s, environment_s = statistics.median(loop_times_s), statistics.median(environment_times_s)
    generation_s = engine.num_tokens / GENERATED_TOKENS_PER_S
    print(
        f"\n{prompt}: {turns.num_rows} turns, {engine.num_tokens} response tokens; "
        f"generation {generation_s * 1e3:.0f} ms, environment {environment_s * 1e3:.0f} ms, "
        f"loop {loop_s * 1e3:.0f} ms ({loop_s / turns.num_rows * 1e6:.0f} us a turn, {loop_s / generation_s:.1%})"
    )
    assert loop_s < limit * generation_s
