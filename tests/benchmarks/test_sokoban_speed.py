"""Rooms, solutions and demonstrations a second, on one thread."""

import random

import pytest

from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.sokoban.demonstrations import demonstrate
from starpo.ragen.envs.sokoban.environment import Sokoban, SokobanSettings
from starpo.ragen.envs.sokoban.rooms import at_distance, reverse_play
from starpo.ragen.envs.sokoban.solver import solve

pytestmark = pytest.mark.benchmark
NUM_ROUNDS = 5


def report(benchmark, what, function, count):
    """Time `function`, which does `count` of something, and print how many it does a second (median round)."""
    benchmark.pedantic(function, rounds=NUM_ROUNDS, warmup_rounds=1)
    rate = count / benchmark.stats.stats.median
    print(f"\n{what}: {rate:,.0f}/s (median of {NUM_ROUNDS} rounds of {count})")
    return rate


def test_rooms_at_a_distance(benchmark):
    def make():
        rng = python_random(0)
        for _ in range(2000):
            at_distance(rng, 6, 6, 6, 10)

    assert report(benchmark, "6x6 rooms of solution length 6-10", make, 2000) > 2000


def test_resets_with_a_seed_each(benchmark):
    environment = Sokoban(SokobanSettings(generator="distance", observation="compact"))

    def reset():
        for seed in range(1000):
            environment.reset(seed=seed)

    report(benchmark, "resets of the distance generator, seeding and rendering included", reset, 1000)


@pytest.mark.parametrize(("size", "num_boxes", "depth", "count"), [(6, 1, 300, 500), (8, 2, 10, 500), (8, 2, 300, 3)])
def test_rooms_by_reverse_play(benchmark, size, num_boxes, depth, count):
    def make():
        rng = python_random(0)
        for _ in range(count):
            reverse_play(rng, size, size, num_boxes, depth)

    report(benchmark, f"{size}x{size} rooms with {num_boxes} boxes by reverse play, depth {depth}", make, count)


def test_solutions(benchmark):
    rng = python_random(0)
    boards = [at_distance(rng, 6, 6, 6, 10) for _ in range(1000)]
    report(benchmark, "shortest solutions of 6-10 actions", lambda: [solve(board) for board in boards], 1000)


def test_demonstrated_turns(benchmark):
    environment = Sokoban(SokobanSettings(generator="distance", observation="compact"))

    def play():
        rng = random.Random(0)
        for seed in range(500):
            environment.reset(seed=seed)
            for _ in range(5):
                if environment.is_success:
                    break
                for action in demonstrate(environment, 0.15, rng).actions:
                    if not environment.is_success:
                        environment.step(action)

    report(benchmark, "episodes of five demonstrated turns, played", play, 500)
