"""checkpoint, turns, rewards, selection -> credits: the values before and after turns, by continuations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.registry import REWARDS, SCENES, agent_code
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.make import environment_code
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts
from starpo.schemas.manifest import Stage

if TYPE_CHECKING:
    import pyarrow as pa

    from starpo.ragen.learning.true_credit.states import TurnStates

STAGE = Stage(name="credit", version=1)

NUM_FIRST = 8
"""Continuations of every state in the first round."""
STEP = 4
"""Continuations that a state gets at a time in later rounds."""
NUM_ROUNDS = 3
"""Further rounds, of equal budgets. Each is shared by what is known after the one before."""
_OF_PLAYING = {"temperature", "top_p", "max_response_tokens", "max_context_tokens", "engine"}

OnProgress = Callable[[int, int], None]
"""Called with the number of shards that have ended in a round, and of those that it has."""


@dataclass(frozen=True)
class Choice:
    """Which turns of a rollout are credited.

    Attributes:
        groups: Ids of groups. None: those that the filter kept.
        sample: Number of their trajectories, drawn at random. None: all.
    """

    groups: tuple[str, ...] | None = None
    sample: int | None = None

    def settings(self) -> dict[str, Any]:
        """Return it for a key."""
        return {"groups": self.groups and list(self.groups), "sample": self.sample}


def credit(
    config: StarPOConfig,
    checkpoint: str,
    data: dict[str, str],
    choice: Choice,
    *,
    first: int = NUM_FIRST,
    earlier: str = "",
    budget: float = 0.0,
    unit: str = "",
    is_trained_on: bool = False,
    on_progress: OnProgress | None = None,
) -> Work:
    """Measure the credit of turns: the first round, or with an earlier measurement the rounds that refine it.

    Args:
        config: Settings of the iteration.
        checkpoint: Key of the policy that played the rollout.
        data: Role -> key of turns, rewards and selection, of all attempts.
        choice: Which turns.
        first: Number of continuations of every state in the first round.
        earlier: Key of the credits of the same turns to go on from. "": the first round.
        budget: How many continuations, or tokens, may be added to the earlier ones at most.
        unit: 'continuations' or 'tokens'.
        is_trained_on: Whether an update trains on it; then it has random numbers of its own, so that a measurement can
            tell how far it is from the truth.
        on_progress: Receives its progress.

    Raises:
        EnvironmentFault: When carried out, if a stored episode cannot be played again.
    """
    engine = config.rollout.engine
    settings = {
        "environment": config.environment.model_dump(mode="json"),
        "agent": config.agent.model_dump(mode="json"),
        "rollout": config.rollout.model_dump(mode="json", include={*_OF_PLAYING, engine}),
        "reward": config.reward.effective(),
        "choice": choice.settings(),
        **({"budget": budget, "unit": unit, "rounds": NUM_ROUNDS, "step": STEP} if earlier else {"first": first}),
    }
    inputs = {"checkpoint": checkpoint, **data} | ({"credits": earlier} if earlier else {})
    code = {**environment_code(config.environment), **agent_code(config.agent.prompt, config.agent.form)}
    code |= {f"reward {name}": REWARDS[name] for name in config.reward.components}
    code |= {f"scene of {environment}": target for environment, target in SCENES.items()}
    do = partial(_measure, config, choice, on_progress)
    purpose = "credit to train on" if is_trained_on else "credit"
    seed = derive_seed(config.seed, purpose, data["turns"])  # no rollout has the luck of another's continuations
    return Work(STAGE, ("credits",), do, settings, inputs, seed, code)


def chosen_turns(store: Store, data: dict[str, str], choice: Choice, seed: int) -> "tuple[pa.Table, Any]":
    """Return the turns that are credited, of each trajectory in order of time, and what was left out (`Credited`)."""
    import pyarrow.compute as pc

    from starpo.ragen.learning.true_credit.states import credited

    turns = read_attempts(store, "turns", data)
    groups = choice.groups
    if groups is None:
        selection = read_attempts(store, "selection", data, ["group_id", "kept"])
        groups = tuple(selection.filter(selection["kept"])["group_id"].to_pylist())
    chosen = credited(turns, groups, choice.sample, lambda name: derive_seed(seed, "credit", name))
    is_chosen = pc.is_in(turns["trajectory_id"], pc.cast(np.array(chosen.trajectories, dtype=str), "string"))
    return turns.filter(is_chosen).combine_chunks(), chosen


def states_of(turns: "pa.Table", config: StarPOConfig) -> "TurnStates":
    """Return the states before turns. A component of the reward that is not of this package may read turns that the
    policy no longer sees; then only turns with the same history share a state."""
    from starpo.ragen.learning.true_credit.states import find_states

    columns = [
        "trajectory_id", "group_id", "env", "env_seed", "turn", "observation", "is_context_start", "prompt_ids",
        "response_ids", "finish_reason", "actions_left", "initial_state_digest", "state_digest",
    ]  # fmt: skip
    is_shared = all(REWARDS[name].startswith("starpo.") for name in config.reward.components)
    return find_states(turns.select(columns).to_pylist(), is_history_shared=is_shared)


def _measure(
    config: StarPOConfig,
    choice: Choice,
    on_progress: OnProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.learning.true_credit.plan import further_continuations
    from starpo.ragen.learning.true_credit.values import credits_table
    from starpo.ragen.runs.continuations import Continuations

    data = {role: key for role, key in work.inputs.items() if role not in ("checkpoint", "credits")}
    turns, _ = chosen_turns(store, data, choice, config.seed)
    states = states_of(turns, config)
    played = Continuations(config, turns, states, work, store, placement, on_progress)
    if "credits" in work.inputs:
        earlier = store.read_table("credits", work.inputs["credits"])
        played.resume(earlier)
        values = dict(zip(*(earlier[name].to_pylist() for name in ("state", "solver_before")), strict=True))
        solver = None if None in values.values() else [values[digest] for digest in states.digests]
        left, is_tokens = work.settings["budget"], work.settings["unit"] == "tokens"
        for number in range(NUM_ROUNDS):
            costs = played.num_tokens / played.counts if is_tokens else np.ones(len(states.digests))
            spent = played.num_tokens if is_tokens else played.counts
            before = spent.sum()
            new = further_continuations(states, played.returns, costs, left / (NUM_ROUNDS - number), STEP)
            if new.any():
                played.play(new)
            left -= (played.num_tokens if is_tokens else played.counts).sum() - before
    else:
        played.play(np.full(len(states.digests), work.settings["first"]))
        solver = played.solver_values(work.settings["first"])
    table = credits_table(
        states,
        played.returns,
        (played.num_successes / played.counts).tolist(),
        played.num_tokens.tolist(),
        _rewards(store, data, states),
        solver,
    )
    yield Output(
        "credits",
        table,
        {"num_turns": table.num_rows, "num_states": len(states.digests), "num_tokens": int(played.num_tokens.sum())},
        played.provenance(),
        placement.players.is_deterministic(config.rollout),
    )
    played.forget()


def _rewards(store: Store, data: dict[str, str], states: "TurnStates") -> list[float]:
    """Return the stored reward of each credited turn."""
    paid = read_attempts(store, "rewards", data, ["trajectory_id", "turn", "total"])
    names, turns, totals = (paid[name].to_pylist() for name in paid.column_names)
    total = dict(zip(zip(names, turns, strict=True), totals, strict=True))
    return [total[trajectory_id, turn] for trajectory_id, _, turn in states.turns]
