"""Copies of environments share what cannot change, and nothing else."""

import pytest

from starpo.ragen.envs.base import Environment
from starpo.ragen.envs.frozen_lake.environment import FrozenLake, FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import Sokoban, SokobanSettings


class Counting(Sokoban):
    """A subclass with a part that changes."""

    def __init__(self, settings: SokobanSettings) -> None:
        super().__init__(settings)
        self.taken: list[str] = []

    def step(self, action: str):
        self.taken.append(action)
        return super().step(action)


@pytest.mark.parametrize(
    "environment",
    [FrozenLake(FrozenLakeSettings(slip=0.5)), Sokoban(SokobanSettings()), Counting(SokobanSettings())],
    ids=lambda environment: type(environment).__name__,
)
def test_clone_moves_alone(environment: Environment) -> None:
    environment.reset(seed=3)
    before, parts = environment.state_digest(), str(vars(environment))
    clone = environment.clone(7)
    digests = set()
    for action in environment.actions * 3:
        if clone.is_success or getattr(clone, "is_over", False):
            break
        clone.step(action)
        digests.add(clone.state_digest())
    assert len(digests) > 1
    assert (environment.state_digest(), str(vars(environment))) == (before, parts)
