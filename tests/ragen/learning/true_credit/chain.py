"""A Markov chain with chance in moves and rewards, a player that acts at random, and exact values of both.

stored episodes of the random player -> continuations of it -> returns, beside the values by dynamic programming
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.rollout.branches import Branches, mark_of
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.scripted import ScriptedEngine
from starpo.ragen.agents.rollout.shards import make_episodes
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings, _lake
from starpo.ragen.envs.frozen_lake.map import ACTIONS
from starpo.ragen.learning.true_credit.returns import outcomes
from starpo.ragen.learning.true_credit.states import TurnStates, find_states

NUM_TURNS = 4
REWARD = RewardConfig()
END = 3
MOVES = {"Left": 0.25, "Right": 0.75}
PAID = (-1.0, 0.0, 0.5, 2.0)
AGENT = AgentConfig(prompt="state", max_turns=NUM_TURNS, max_actions=NUM_TURNS, max_actions_per_turn=1)
LAKE = FrozenLakeSettings(size=2, frozen_probability=0.8)


class ChainSettings(EnvironmentSettings):
    type: Literal["chain"] = "chain"


class Chain(Environment[ChainSettings]):
    """Cells 0 to 3: an action moves one cell on with its probability, and pays one of `PAID`; cell 3 ends."""

    settings_type = ChainSettings
    action_cost: ClassVar[float] = -1.0
    actions = tuple(MOVES)
    has_chance = True

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        self.cell = seed % 2
        self.reseed(dynamics_seed)
        return self.render(), {}

    def reseed(self, dynamics_seed: int) -> None:
        self.chance = python_random(dynamics_seed, "chain")

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        moves, reward = self.chance.random() < MOVES[action], self.chance.choice(PAID)
        self.cell += moves
        return self.render(), reward, self.is_success, False, {"effective": moves, "cell": self.cell}

    @property
    def is_success(self) -> bool:
        return self.cell == END

    def rules(self) -> str:
        return "Go on."

    def state_digest(self) -> str:
        return f"{self.cell:016x}"

    def render(self) -> str:
        return f"P {self.cell}"


def chain_value(before: dict[str, Any] | None, seed: int, turns_left: int) -> float:
    """Return the expected return of random actions, from the row of the turn before and the episode's seed."""
    on = float(np.mean(list(MOVES.values())))

    @cache
    def value(cell: int, left: int) -> float:
        if cell == END or left == 0:
            return 0.0
        return float(np.mean(PAID)) + on * value(cell + 1, left - 1) + (1 - on) * value(cell, left - 1)

    return value(json.loads(before["info"])["cell"] if before else seed % 2, turns_left)


def lake_value(before: dict[str, Any] | None, seed: int, turns_left: int) -> float:
    """Return the same on `LAKE`: the probability to reach the goal in time."""
    lake = _lake(LAKE, seed)

    @cache
    def value(cell: int, left: int) -> float:
        if cell == lake.goal:
            return 1.0
        if left == 0 or cell in lake.holes:
            return 0.0
        outcomes = [lake.outcomes(cell, action, LAKE.slip) for action in ACTIONS]
        return sum(chance * value(to, left - 1) for of in outcomes for chance, to in of) / len(ACTIONS)

    row, column = json.loads(before["info"])["cell"] if before else lake.coordinates(lake.start)
    return value(row * lake.size + column, turns_left)


@dataclass(frozen=True)
class Played:
    """Episodes of the random player, their states, and what else their continuation needs."""

    job: RolloutJob
    turns: pa.Table
    states: TurnStates

    def exact(self, value: Callable[[dict[str, Any] | None, int, int], float]) -> np.ndarray:
        """Return the value of each state. float64 [S]"""
        rows = {(row["trajectory_id"], row["turn"]): row for row in self.turns.to_pylist()}
        return np.array(
            [
                value(rows.get((name, turn - 1)), rows[name, turn]["env_seed"], NUM_TURNS - turn)
                for name, turn in self.states.places
            ]
        )

    def returns(self, first: int, stop: int, seed: int = 0) -> np.ndarray:
        """Return the returns of continuations from every state. float64 [S, stop - first]"""
        places = [(*place, first, stop) for place in self.states.places]
        episodes = [
            Branches(
                **{
                    name: rows[0][name] for name in ("group_id", "member", "env_seed", "dynamics_seed", "sampling_seed")
                },
                responses=[(r["response_ids"], r["finish_reason"], r["response"], mark_of(r)) for r in rows[:turn]],
                starts=[(turn, first, stop)],
                seed=seed,
            )
            for name, turn in self.states.places
            for rows in [[row for row in self.turns.to_pylist() if row["trajectory_id"] == name]]
        ]
        played = LocalPlayer(ScriptedEngine("random")).play(self.job, episodes)
        return outcomes(played, self.turns, places, REWARD, None).returns.reshape(len(places), -1)


def play_at_random(environment: EnvironmentSettings, folder: str | Path, num_groups: int = 3) -> Played:
    """Play four episodes a group with random actions."""
    job = RolloutJob(str(folder), "key", environment, AGENT, SamplingConfig(max_response_tokens=60), 4096)
    (episodes,) = make_episodes([(f"g{seed}", seed) for seed in range(num_groups)], 4, num_groups)
    turns = LocalPlayer(ScriptedEngine("random")).play(job, episodes).combine_chunks()
    return Played(job, turns, find_states(turns.to_pylist(), is_history_shared=True))
