"""Tiny random policy in a folder, and trajectories of random tokens for it that often share a prefix."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.data.spans import UNKNOWN
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.torch_learner import TorchLearner

settings.register_profile("torch", deadline=None, max_examples=50)
settings.load_profile("torch")

CONTEXT = UpdateContext(iteration=0, num_iterations=10, seed=5, temperature=1.0, max_response_tokens=8)


def change(config: UpdateConfig, **settings: Any) -> UpdateConfig:
    """Return the validated configuration with other settings."""
    return UpdateConfig.model_validate(config.model_copy(update=settings).model_dump())


def loaded(config: UpdateConfig, folder: str, reference: str | None = None) -> TorchLearner:
    """Return a learner at the checkpoint in a folder."""
    learner = TorchLearner(config, num_threads=1)
    learner.load(folder, "start", reference)
    return learner


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory) -> str:
    """Qwen2 with about ten thousand random weights and a tokenizer, as written by `save_pretrained`."""
    folder: Path = tmp_path_factory.mktemp("policy")
    tokenizer = make_tokenizer()
    config = TinyPolicy(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=24, seed=3)
    make_model(config, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def visual_folder(tmp_path_factory) -> str:
    """Visual policy of about ten thousand random weights, as written by `save_pretrained`."""
    folder: Path = tmp_path_factory.mktemp("visual")
    tokenizer = make_tokenizer(patch_size=32)
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 24}
    make_model(TinyPolicy(**sizes, patch_size=32, seed=3), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def showing(trajectories: list[Trajectory], num_images: int = 3) -> list[Trajectory]:
    """Put an image of two tokens, one of a few, before every segment."""
    rng, table = np.random.default_rng(0), ImageTable()
    images = [Image(rng.integers(0, 256, (64, 32, 3), np.uint8)) for _ in range(num_images)]
    for image in images:
        table.ids(image, 2)
    changed = []
    for number, trajectory in enumerate(trajectories):
        ids = table.ids(images[number % num_images], 2)
        parts = [
            Segment(
                np.concatenate([ids, one.token_ids]),
                *(
                    np.concatenate([np.zeros(2, part.dtype), part])
                    for part in (one.response_mask, one.behaviour_logprobs)
                ),
                np.concatenate([np.full(2, -1), one.turn]),
                np.concatenate([np.full(2, UNKNOWN, one.kind.dtype), one.kind]),
            )
            for one in trajectory.segments
        ]
        changed.append(dataclasses.replace(trajectory, segments=tuple(parts), images=table))
    return changed


def segment(rng: np.random.Generator, turns: list[int], group: int) -> Segment:
    """Segment of two to five prompt tokens per turn, the same for the whole group, and one to six response tokens.

    Responses consist of three different tokens, so that members often share a prefix and some segments are equal.
    """
    tokens, masks, indices = [], [], []
    for turn in turns:
        prompt_rng = np.random.default_rng([group, turn])
        prompt = prompt_rng.integers(0, 200, prompt_rng.integers(2, 6))
        response = rng.integers(7, 10, rng.integers(1, 7))
        tokens += [*prompt, *response]
        masks += [False] * len(prompt) + [True] * len(response)
        indices += [-1] * len(prompt) + [turn] * len(response)
    mask = np.array(masks)
    logprobs = np.where(mask, -rng.random(len(mask)) - 5, 0).astype(np.float32)
    kinds = np.where(mask, 1 + np.arange(len(mask)) % 3, 0).astype(np.int8)
    return Segment(np.array(tokens), mask, logprobs, np.array(indices), kinds)


def random_trajectory(index: int, context: str = "window", num_turns: int = 2, group_size: int = 4) -> Trajectory:
    """Trajectory of random tokens and rewards, determined by the arguments alone."""
    rng = np.random.default_rng(index)
    runs = [[turn] for turn in range(num_turns)] if context == "window" else [list(range(num_turns))]
    rewards = rng.normal(size=num_turns)
    total = float(rewards.sum())
    segments = tuple(segment(rng, run, index // group_size) for run in runs)
    states = np.array([index // group_size * 10 + turn * (turn + index % 2) for turn in range(num_turns)])
    reasoning = np.array([None if turn % 2 else "<subgoal>" for turn in range(num_turns)], dtype=object)
    return Trajectory(
        f"t{index}", f"g{index // group_size}", segments, rewards, total, total, states, reasoning, np.ones(num_turns)
    )


@pytest.fixture(scope="session")
def make_trajectories() -> Callable[..., list[Trajectory]]:
    """`make_trajectories(8, context="full") -> list[Trajectory]` of two turns each, in groups of four."""
    return lambda count, **settings: [random_trajectory(index, **settings) for index in range(count)]


@pytest.fixture(scope="session")
def context() -> UpdateContext:
    """Context of the first of ten updates."""
    return CONTEXT
