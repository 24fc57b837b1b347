"""Rounds of continuations, played from the states before turns by the checkpoint that played the rollout.

states, number of new continuations of each -> Branches -> shards -> (players) -> returns, tokens
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.rollout.branches import Branches, mark_of
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.shards import ShardPlayer, play_shards
from starpo.ragen.config.engine import Merging
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.envs import make
from starpo.ragen.envs.make import environment_type
from starpo.ragen.learning.true_credit.returns import Outcomes, Start, outcomes
from starpo.ragen.learning.true_credit.states import TurnStates
from starpo.ragen.runs.kept_shards import KeptShards
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Store

SHARD_CONTINUATIONS = 768
"""Continuations that are generated together; those of a trajectory stay together."""


class Continuations:
    """The continuations of states so far.

    Attributes:
        returns: Returns of each state, by number of the continuation. float64, one array a state
        num_successes: How many of each state's continuations reached the goal. int64 [S]
        num_tokens: Tokens sampled in each state's continuations. int64 [S]
    """

    def __init__(
        self,
        config: StarPOConfig,
        turns: pa.Table,
        states: TurnStates,
        work: Work,
        store: Store,
        placement: ModelPlacement,
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        """Play nothing yet.

        Args:
            config: Settings of the iteration.
            turns: Dataset `turns` of the credited trajectories, of each in order of time.
            states: Their states.
            work: The stage.
            store: Where it is carried out.
            placement: Its players.
            on_progress: Called with the number of shards that have ended in a round, and of those that it has.
        """
        self.returns = [np.zeros(0)] * len(states.digests)
        self.num_successes, self.num_tokens = (np.zeros(len(states.digests), np.int64) for _ in range(2))
        self._config = config
        self._turns = turns
        self._states = states
        self._work = work
        self._store = store
        self._placement = placement
        self._on_progress = on_progress
        self._kept: list[KeptShards] = []
        self._seconds = 0.0
        self._types = {tag: part.type for tag, part in config.environment.tagged().items()} if config.tags else None
        self._job = RolloutJob(
            folder=placement.learner.policy_folder(store, work.inputs["checkpoint"]),
            checkpoint_key=work.inputs["checkpoint"],
            environment=config.environment,
            agent=config.agent,
            sampling=config.rollout.sampling,
            max_context_tokens=config.rollout.max_context_tokens,
            store_url=store.address,
        )

    def resume(self, credits: pa.Table) -> None:
        """Take the continuations of an earlier measurement of the same turns."""
        columns = ("state", "returns", "success", "num_tokens")
        of_state = {state: rest for state, *rest in zip(*(credits[name].to_pylist() for name in columns), strict=True)}
        for index, digest in enumerate(self._states.digests):
            returns, success, num_tokens = of_state[digest]
            self.returns[index] = np.array(returns)
            self.num_successes[index] = round(success * len(returns))
            self.num_tokens[index] = num_tokens

    @property
    def counts(self) -> np.ndarray:
        """Number of continuations of each state. int64 [S]"""
        return np.array([len(of_state) for of_state in self.returns])

    def play(self, new: np.ndarray) -> None:
        """Play so many new continuations of each state.

        Raises:
            EnvironmentFault: If a stored episode differs when it is played again, or the environment fails.
        """
        rollout, started = self._config.rollout, time.perf_counter()
        places = self._places(new)
        shards = _shards(self._branches(places))
        player = self._placement.players.player(rollout, len(shards))
        kept = KeptShards(self._store, self._work, is_computed=rollout.engine_config.plays_checkpoint)
        self._kept.append(kept)
        played = self._outcomes(player, shards, places, kept)
        first = 0
        for index, stop in zip(np.flatnonzero(new), np.cumsum(new[new > 0]), strict=True):
            part = slice(first, stop)
            self.returns[index] = np.append(self.returns[index], played.returns[part])
            self.num_successes[index] += played.successes[part].sum()
            self.num_tokens[index] += played.num_tokens[part].sum()
            first = stop
        self._seconds += time.perf_counter() - started

    def solver_values(self, num_plays: int) -> list[float] | None:
        """Return the mean return of the environment's solver from each state; None if there is none to ask.

        Args:
            num_plays: Number of its continuations of each state where the environment has chance; elsewhere one.
        """
        from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
        from starpo.ragen.agents.rollout.scripted import ScriptedEngine

        parts = self._config.environment.tagged().values()
        has_solver = all(environment_type(part.type).demonstrator for part in parts)
        if not has_solver or self._config.agent.form != "free":
            return None
        number = num_plays if make(self._config.environment).has_chance else 1
        places = self._places(np.full(len(self.returns), number))
        player = LocalPlayer(ScriptedEngine("solver"))
        played = self._outcomes(player, _shards(self._branches(places)), places, None)
        values: list[float] = played.returns.reshape(-1, number).mean(axis=1).tolist()
        return values

    def provenance(self) -> dict[str, float]:
        """Return what is recorded of how they were made: the seconds of playing, for plans in minutes."""
        return {"playing_seconds": round(self._seconds, 3)} | (self._kept[-1].provenance() if self._kept else {})

    def forget(self) -> None:
        """Delete the shards that were kept for an interruption."""
        for kept in self._kept:
            kept.forget()

    def _places(self, new: np.ndarray) -> list[Start]:
        """Return where the new continuations of each state begin, in the order of the states."""
        counts = self.counts
        return [
            (*self._states.places[index], int(counts[index]), int(counts[index] + new[index]))
            for index in np.flatnonzero(new)
        ]

    def _branches(self, places: Sequence[Start]) -> list[Branches]:
        """Return stored episodes, with the continuations of all states that appear in them first."""
        starts: dict[str, list[tuple[int, int, int]]] = {}
        for trajectory_id, *start in places:
            starts.setdefault(trajectory_id, []).append((start[0], start[1], start[2]))
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self._turns.to_pylist():
            if row["trajectory_id"] in starts:
                rows.setdefault(row["trajectory_id"], []).append(row)
        branches = []
        for trajectory_id, of_trajectory in starts.items():
            first = rows[trajectory_id][0]
            branches.append(
                Branches(
                    **{name: first[name] for name in ("group_id", "member", "env_seed", "dynamics_seed")},
                    sampling_seed=first["sampling_seed"],
                    responses=[
                        (row["response_ids"], row["finish_reason"], row["response"], mark_of(row))
                        for row in rows[trajectory_id][: of_trajectory[-1][0]]
                    ],
                    starts=of_trajectory,
                    seed=self._work.seed or 0,
                )
            )
        return branches

    def _outcomes(
        self,
        player: ShardPlayer,
        shards: Sequence[Sequence[Branches]],
        places: Sequence[Start],
        kept: KeptShards | None,
    ) -> Outcomes:
        merging = self._config.rollout.engine_config.panel_merging
        number = max(
            (sum(stop - first for _, first, stop in one.starts) for shard in shards for one in shard), default=1
        )
        merging = Merging(max(1, merging.num_episodes // number), merging.num_at_once)  # an episode is `number` ones
        played = play_shards(player, self._job, shards, self._on_progress, keeper=kept, merging=merging)
        return outcomes(played, self._turns, places, self._config.reward, self._types)


def _shards(branches: Sequence[Branches]) -> list[list[Branches]]:
    """Distribute whole episodes over shards, in order."""
    shards: list[list[Branches]] = []
    room = 0
    for one in branches:
        size = sum(stop - first for _, first, stop in one.starts)
        if not shards or size > room:
            shards.append([])
            room = SHARD_CONTINUATIONS
        shards[-1].append(one)
        room -= size
    return shards
