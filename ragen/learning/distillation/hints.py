"""Hints: what the teacher's prompts say and the policy's do not.

turns, environment -> plans: in every turn, what a good player would do now
turns -> outcomes: at the start of a context, how this attempt ends, and another one that succeeds
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import LearnerError, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.grammar import ACTION_SEPARATOR
from starpo.ragen.envs.make import environment_type

Hints = dict[tuple[str, int], str]
"""Trajectory and turn -> hint; turns without one are absent."""

_COLUMNS = (
    "trajectory_id", "group_id", "env_seed", "dynamics_seed", "turn", "is_context_start", "response_ids",
    "executed_actions", "action_rewards", "success",
)  # fmt: skip


def plans(turns: pa.Table, environment: EnvironmentSettings, max_actions: int) -> Hints:
    """Return what the environment's demonstrator, at full skill, would do in each turn with a response.

    The stored actions are executed again, so that it decides in the state that the policy met. In equal states of a
    group it says the same.

    Args:
        turns: Dataset `turns`.
        environment: Its environment.
        max_actions: Actions of a turn at most.

    Raises:
        LearnerError: If the environment or its demonstrator fails.
    """
    world, player = make(environment), resolve(environment_type(environment.type).demonstrator)
    hints: Hints = {}
    known: dict[tuple[int, str], str] = {}
    for rows in _trajectories(turns):
        first = rows[0]
        try:
            with guarded(f"the demonstrator of '{environment.type}'", Runtime.current().plugin_limit):
                world.reset(seed=first["env_seed"], dynamics_seed=first["dynamics_seed"])
                for row in rows:
                    if row["response_ids"]:
                        state = (row["env_seed"], world.state_digest())
                        if state not in known:
                            decision = player(world, 1.0, python_random("hint", *state))
                            known[state] = f" {ACTION_SEPARATOR} ".join(decision.actions[:max_actions])
                        hints[row["trajectory_id"], row["turn"]] = known[state]
                    for action in row["executed_actions"]:
                        world.step(action)
        except StarPOError:
            raise
        except FOREIGN as error:  # environments and demonstrators are third-party code
            raise LearnerError(
                f"teacher.hint = 'plan' has no plan for trajectory '{first['trajectory_id']}': "
                f"{describe_fault(error, type(world).__module__)}. Set teacher.hint = 'outcome' or 'none'"
            ) from error
    return hints


def outcomes(turns: pa.Table) -> Hints:
    """Return how each attempt ends, for the turns in which its contexts start.

    An attempt that fails is told the actions of the first member of its group that succeeds, if one does.

    Args:
        turns: Dataset `turns`.
    """
    attempts = list(_trajectories(turns))
    solutions: dict[str, str] = {}
    for rows in attempts:
        if rows[-1]["success"]:
            acts = [f" {ACTION_SEPARATOR} ".join(row["executed_actions"]) for row in rows if row["executed_actions"]]
            solutions.setdefault(rows[0]["group_id"], "; ".join(acts))
    hints: Hints = {}
    for rows in attempts:
        if rows[-1]["success"]:
            text = "this attempt reaches the goal."
        elif rows[0]["group_id"] in solutions:
            text = f"this attempt fails. One that reaches the goal: {solutions[rows[0]['group_id']]}"
        else:
            text = f"this attempt fails, with a reward of {sum(sum(row['action_rewards']) for row in rows):g}."
        hints |= {(row["trajectory_id"], row["turn"]): text for row in rows if row["is_context_start"]}
    return hints


def _trajectories(turns: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each trajectory, in time order; trajectories by group and member."""
    rows = turns.select([*_COLUMNS, "member"]).to_pylist()
    rows.sort(key=lambda row: (row["group_id"], row["member"], row["trajectory_id"], row["turn"]))
    for _, group in groupby(rows, key=lambda row: row["trajectory_id"]):
        yield list(group)
