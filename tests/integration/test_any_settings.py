"""Settings drawn at random, of those that validate: runs repeat to the byte, and an update is the same however it is
computed."""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, NothingKeptError
from starpo.ragen.core.registry import ADVANTAGES, FILTERS, SURROGATES
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import train
from starpo.tasks.update import update

pytestmark = pytest.mark.timeout(600)

SMALL = {
    "policy.hidden_size": 64,
    "policy.num_layers": 1,
    "policy.num_heads": 2,
    "policy.num_kv_heads": 1,
    "policy.intermediate_size": 128,
    "policy.warm_start_steps": 40,
    "policy.demonstration_turns": 1000,
    "rollout.max_response_tokens": 160,
    "rollout.max_context_tokens": 2000,
    "evaluation.num_prompts": 4,
    "evaluation.every": 1,
    "iterations": 2,
    "filter.should_drop_zero_variance": False,  # else most of these short runs have nothing to train on
    "update.search_rows": "weigh",
}
PRESETS = ("smoke", "smoke", "smoke", "frozen-lake", "bandit", "countdown", "rubik", "sudoku", "game-2048")
SPACE: dict[str, tuple[Any, ...]] = {
    "online_k": (1, 1, 2),
    "agent.context": ("window", "full"),
    "agent.max_turns": (1, 2, 5),
    "agent.max_actions": (1, 3, 10),
    "agent.max_actions_per_turn": (1, 2, 5),
    "agent.should_malformed_use_actions": (True, False),
    "agent.should_think": (True, False),
    "agent.form": ("free", "free", "grounding", "worldmodeling", "grounding_worldmodeling"),
    "agent.should_show_reward": (True, False),
    "agent.should_prefill_think": (True, False),
    "rollout.temperature": (1.0, 0.7, 1.3),
    "rollout.top_p": (1.0, 1.0, 0.9),
    "rollout.num_groups": (1, 2, 4, 5),
    "rollout.group_size": (1, 2, 4, 4),
    "rollout.shard_groups": (1, 2, 4),
    "rollout.num_greedy": (0, 1),
    "rollout.staleness": (0, 0, 1),
    "rollout.max_attempts": (1, 1, 2),
    "rollout.search": (
        None,
        None,
        None,
        {"type": "best_of", "num_candidates": 2},
        {"type": "beam", "num_candidates": 2, "beam_width": 2},
        {"type": "lookahead", "num_candidates": 2, "depth": 2},
    ),
    "reward.components": (
        ["environment", "format", "forfeit"],
        ["environment", "format", "reasoning_format"],
        ["environment", "format", "grounding"],
        ["environment", "format", "agreement"],
    ),
    "reward.normalisation": ("none", "mean", "mean_std", "asymmetric_clip"),
    "reward.normalisation_scope": ("group", "environment", "batch"),
    "filter.strategy": tuple(FILTERS),
    "filter.keep": (0.25, 0.5, 1.0),
    "filter.metric": ("std", "sample_std", "mean", "entropy", "entropy_std", "length"),
    "filter.should_keep_largest": (True, False),
    "filter.num_wanted": (None, 1, 2),
    "update.advantage": tuple(ADVANTAGES),
    "update.advantage_scale": ("none", "group", "batch"),
    "update.should_whiten": (True, False),
    "update.gamma": (1.0, 0.95),
    "update.gae_lambda": (1.0, 0.9),
    "update.gamma_turn": (1.0, 0.9),
    "update.lambda_turn": (1.0, 0.9),
    "update.reward_placement": ("turn_end", "trajectory_end"),
    "update.advantage_on": ("all", "all", "think", "answer", "format"),
    "update.loss_on": ("all", "all", "think", "answer", "format"),
    "update.shaping": ([], ["asymmetric_clip"], ["by_group_std"], ["by_kept_share", "by_length"], ["zero"]),
    "update.ratio": ("token", "token", "turn_geometric", "turn_arithmetic", "sequence"),
    "update.surrogate": tuple(SURROGATES),
    "update.uncertain_share": (1.0, 1.0, 0.2),
    "update.kl_coefficient": (0.0, 0.01),
    "update.kl_estimator": ("k1", "k2", "k3"),
    "update.kl_placement": ("loss", "reward"),
    "update.entropy_coefficient": (0.0, 0.01),
    "update.entropy_target": (None, None, 1.0),
    "update.observation_coefficient": (0.0, 0.0, 0.1),
    "update.aggregation": ("token_mean", "sequence_mean", "dr_grpo"),
    "update.ratio_to": ("update_start", "behaviour"),
    "update.importance_cap": (None, 2.0),
    "update.importance_unit": ("token", "sequence", "sequence_geometric"),
    "update.importance_floor": (None, 0.5),
    "update.importance_outside": ("truncate", "mask"),
    "update.negative_max_kl": (None, 0.01),
    "update.should_weigh_kl": (False, True),
    "update.turn_order": ("together", "together", "reverse"),
    "update.effective_sample_reference": (None, None, 0.5),
    "update.num_epochs": (1, 2),
    "update.num_minibatches": (1, 2, 7),
    "update.scored_share": (1.0, 0.4),
    "update.micro_batch_tokens": (64, 512, 8192),
    "update.optimiser.type": ("muon", "adamw"),
    "update.critic.warmup_updates": (0, 1),
    "update.lora": (None, None, {"rank": 4, "alpha": 8}),
    "update.dtype": ("float32", "float32", "bfloat16", "float16"),
    "diagnostics.probe_every": (0, 1),
    "diagnostics.gradients_every": (0, 0, 1),
}
TOGETHER: dict[str, dict[str, Any]] = {
    "filter.strategy = top_k": {"filter.keep_count": 2},
    "rollout.max_attempts = 2": {"filter.num_wanted": 2},
    "rollout.staleness = 1": {"update.importance_cap": 2.0},
    "update.advantage = monte_carlo": {
        "rollout.search": None,
        "reward.components": ["environment", "format"],
        "reward.normalisation": "none",
        "diagnostics.gradients_every": 0,
    },
    "update.advantage = remax": {"rollout.num_greedy": 1, "reward.normalisation": "none"},
}
"""A setting that is rejected without others -> those others."""
ONE_STEP = {
    "update.num_epochs": 1,
    "update.num_minibatches": 1,
    "update.turn_order": "together",
    "update.micro_batch_tokens": 4096,
    "update.scored_share": 1.0,
    "update.surrogate": "ppo",  # ties between tokens would be decided by rounding with clip_cov and kl_cov
    "update.dtype": "float32",
    "update.optimiser.type": "adamw",  # the only one that ranks share
}
OTHERWISE: dict[str, dict[str, Any]] = {
    "small micro-batches": {"update.micro_batch_tokens": 64},
    "recomputed activations": {"update.activation_checkpointing": True},
    "log-probs of the rollout": {"update.scored_share": 0.4},
    "two ranks": {"update.learner": "deepspeed", "update.deepspeed.num_ranks": 2},
}
"""Ways to compute an update that change its numbers by rounding alone."""
NUMBERS = ("gradient_norm", "policy_loss", "value_loss", "advantage_std", "clip_fraction_high")


class Direct(Runner):
    """Carries out the stages of a run in this process, without records."""

    def __init__(self, store: Store, placement: ModelPlacement) -> None:
        self.placement = placement
        self.name, self.store, self.store_url = "any", store, store.url
        self.done: list[tuple[int, Work]] = []
        self.metrics: defaultdict[int, dict[str, float]] = defaultdict(dict)

    def stage(self, iteration: int, work: Work) -> Keys:
        keys = work.carry_out(self.store, self.placement)
        self.done.append((iteration, work))
        if "metrics" in keys:
            self.metrics[iteration] |= stored_metrics(self.store, keys["metrics"])
        return keys

    def metric(self, iteration: int, name: str) -> float | None:
        return self.metrics[iteration].get(name)

    def digests(self) -> list[tuple[str, str, str]]:
        return [
            (work.name, kind, self.store.manifest(kind, key).content_digest)
            for _, work in self.done
            for kind, key in work.keys.items()
        ]


def drawn(seed: int, ways: Sequence[Mapping[str, Any]] = ({},)) -> tuple[str, dict[str, Any]]:
    """Return a preset and settings: of random values in random order, those that are accepted with each of `ways`."""
    rng = random.Random(seed)
    name, settings = rng.choice(PRESETS), dict(SMALL)
    for setting in rng.sample(list(SPACE), len(SPACE)):
        value = rng.choice(SPACE[setting])
        wider = {**settings, setting: value, **TOGETHER.get(f"{setting} = {value}", {})}
        with suppress(ConfigError):
            for way in ways:
                preset(name, {**wider, **way})
            settings = wider
    return name, settings


def trained(config: StarPOConfig, folder: Path) -> Direct:
    with ModelPlacement() as placement, suppress(NothingKeptError):
        runner = Direct(Store(str(folder)), placement)
        train(runner, config)
    return runner


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 10))])
def test_a_run_repeats_to_the_byte(seed: int, tmp_path: Path) -> None:
    name, settings = drawn(seed)
    first, second = (trained(preset(name, settings), tmp_path / folder) for folder in "ab")
    assert first.digests() == second.digests()
    measured = [value for iteration, _ in first.done for value in first.metrics[iteration].values()]
    assert not any(map(math.isinf, measured))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10))
def test_update_independent_of_its_computation(seed: int, tmp_path: Path) -> None:
    name, settings = drawn(seed, [ONE_STEP | change for change in OTHERWISE.values()])
    runner = trained(preset(name, settings | ONE_STEP), tmp_path)
    updates = [(iteration, work) for iteration, work in runner.done if work.stage.name == "update"]
    if not updates:
        pytest.skip("the filter kept no group")
    iteration, work = updates[0]
    measured = runner.metrics[iteration]
    data = {role: key for role, key in work.inputs.items() if role not in ("checkpoint", "reference")}
    start = next(done.key for _, done in runner.done if done.stage.name == "warm_start")
    for way, change in OTHERWISE.items():
        config = preset(name, settings | ONE_STEP | change).at(iteration)
        again = update(config, iteration, work.inputs["checkpoint"], start, data).carry_out(runner.store)
        computed = stored_metrics(runner.store, again["metrics"])
        for metric in (f"update/{number}" for number in NUMBERS):
            expected = pytest.approx(measured.get(metric, math.nan), rel=2e-3, abs=1e-5, nan_ok=True)
            assert computed.get(metric, math.nan) == expected, f"{metric} with {way}"
