"""Stored actions executed again in the environment: observations, rewards, states and ends must match bit for bit.

    turns, settings -> turn_differences            episodes, settings -> episode_differences

No policy and no parser takes part: the executed actions come from the record, and only the environment runs.
"""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.seeding import dynamics_seed
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import ACTION_SEPARATOR
from starpo.schemas.datasets import TURNS

Row = dict[str, Any]

_COLUMNS = [
    "trajectory_id", "env_seed", "dynamics_seed", "turn", "origin", "observation", "executed_actions", "action_rewards",
    "action_effective", "forfeited_actions", "action_cost", "status", "terminated", "truncated", "success",
    "actions_left", "initial_state_digest", "state_digest", "info",
]  # fmt: skip
_EPISODE_COLUMNS = [
    "env", "initial_state_digest", "num_turns", "num_actions", "observations", "actions", "episode_return", "success",
]  # fmt: skip
_PLAYED_COLUMNS = [
    "trajectory_id", "env", "env_seed", "member", "turn", "initial_state_digest", "observation", "response",
    "executed_actions", "action_rewards", "response_ids", "status", "success",
]  # fmt: skip
_UNKNOWN = {
    "env_error": ("state_digest", "success", "info", "truncated"),
    "truncated": ("info", "truncated"),
    "timeout": ("info", "truncated"),
}
"""Status of a turn -> columns that its actions alone do not determine."""


def trajectories(turns: pa.Table, columns: list[str]) -> Iterator[list[Row]]:
    """Yield the rows of each trajectory, in time order; trajectories in the order of their first row."""
    rows = turns.select(columns).to_pylist()
    order: dict[str, int] = {}
    for row in rows:
        order.setdefault(row["trajectory_id"], len(order))
    rows.sort(key=lambda row: (order[row["trajectory_id"]], row["turn"]))
    for _, group in groupby(rows, key=lambda row: row["trajectory_id"]):
        yield list(group)


def turn_differences(turns: pa.Table, settings: EnvironmentSettings, agent: AgentConfig) -> Iterator[str]:
    """Execute the actions of every trajectory again; yield the first difference of each trajectory that has one.

    Compared for every turn: the observation before it, the reward and the effect of each action, `terminated`,
    `success`, the state's digest and info after it; and, by the limits of `agent`, `actions_left` and `truncated`. If
    the environment failed (status env_error), the state after the turn was never recorded, and only the actions
    executed before are compared.

    Args:
        turns: Dataset `turns`, rows in any order.
        settings: Settings of the environment.
        agent: Holds the limits of turns and actions.
    """
    environment = make(settings)
    for rows in trajectories(turns, _COLUMNS):
        difference = _trajectory_difference(rows, environment, agent)
        if difference:
            yield f"trajectory {quoted(rows[0]['trajectory_id'])}, {difference}"


def episode_differences(episodes: pa.Table, settings: EnvironmentSettings) -> Iterator[str]:
    """Execute the actions of every evaluated episode again; yield the first difference of each episode that has one.

    Compared: the digest of the initial state, all observations, the counts of turns and actions, the return, success.

    Args:
        episodes: Dataset `episodes`.
        settings: Settings of the environment.
    """
    environment = make(settings)
    stored: list[Row] = []
    played: list[Row] = []
    for number, row in enumerate(episodes.to_pylist()):
        try:
            turns = _played_again(row, str(number), environment)
        except FOREIGN as error:  # environments are third-party code
            if row["status"] != "env_error":
                yield f"{_place(row)}: the environment now fails: {quoted(error)}"
            continue
        if turns:
            stored.append(row)
            played += turns
        else:
            yield f"{_place(row)}: it has no turns"
    schema = pa.schema([field for field in TURNS.schema if field.name in _PLAYED_COLUMNS])
    again = fold_episodes(pa.Table.from_pylist(played, schema=schema), "", 0.0).to_pylist()
    for old, new in zip(stored, again, strict=True):
        name = next((name for name in _EPISODE_COLUMNS if repr(old[name]) != repr(new[name])), None)
        if name is not None:
            yield f"{_place(old)}: {name} is {quoted(old[name])}, executed again {quoted(new[name])}"


def _place(episode: Row) -> str:
    return f"episode of prompt {episode['env_seed']}, member {episode['member']}"


@guarded()
def _trajectory_difference(rows: list[Row], environment: Environment[Any], agent: AgentConfig) -> str:
    if rows[0]["status"] == "env_error" and not rows[0]["executed_actions"]:
        return ""  # it failed in its reset or its first action: there is nothing to execute
    try:
        observation, _ = environment.reset(seed=rows[0]["env_seed"], dynamics_seed=rows[0]["dynamics_seed"])
        initial_digest, actions_left = environment.state_digest(), agent.max_actions
        for number, row in enumerate(rows):
            expected: Row = {
                "turn": number,
                "observation": observation,
                "initial_state_digest": initial_digest,
                "action_cost": environment.action_cost,
                "actions_left": actions_left,
            }
            if row["origin"] == "search":  # it was tried on a copy of the environment with its own random seed
                environment.reseed(row["dynamics_seed"])
            observation, outcome = _execute(row["executed_actions"], environment, observation)
            actions_left -= len(row["executed_actions"]) + row["forfeited_actions"]
            is_out_of_limits = number + 1 == agent.max_turns or actions_left == 0
            outcome["truncated"] = is_out_of_limits and not outcome["terminated"]
            unknown = _UNKNOWN.get(row["status"], ())
            for name, value in (expected | outcome).items():
                if name not in unknown and repr(row[name]) != repr(value):
                    return f"turn {row['turn']}: {name} is {quoted(row[name])}, executed again {quoted(value)}"
            has_ended = row["terminated"] or row["truncated"] or row["status"] == "env_error"
            if has_ended != (number == len(rows) - 1):
                return f"turn {row['turn']}: the episode {'continues after its end' if has_ended else 'has no end'}"
    except FOREIGN as error:  # environments are third-party code
        return f"the environment now fails: {quoted(error)}"
    return ""


def _execute(actions: list[str], environment: Environment[Any], observation: str) -> tuple[str, Row]:
    """Execute actions; return the observation after them and the columns of `turns` that they determine."""
    rewards, effective, terminated = [], [], False
    info: Info = {}
    for action in actions:
        observation, reward, terminated, _, info = environment.step(action)
        rewards.append(float(reward))
        effective.append(bool(info["effective"]))
    return observation, {
        "action_rewards": rewards,
        "action_effective": effective,
        "terminated": terminated,
        "success": environment.is_success,
        "state_digest": environment.state_digest(),
        "info": json.dumps(info, sort_keys=True, allow_nan=False),
    }


@guarded()
def _played_again(episode: Row, trajectory_id: str, environment: Environment[Any]) -> list[Row]:
    """Replay an episode from its seeds and actions; return the columns of `turns` that episodes are aggregated from."""
    seed = episode["env_seed"]
    observation, _ = environment.reset(seed=seed, dynamics_seed=dynamics_seed(seed, episode["member"]))
    initial_digest = environment.state_digest()
    rows = []
    for turn, text in enumerate(episode["actions"]):
        row: Row = dict.fromkeys(_PLAYED_COLUMNS, "") | {
            "trajectory_id": trajectory_id,
            "env": environment.settings.tag_of(seed),
            "env_seed": seed,
            "member": episode["member"],
            "turn": turn,
            "initial_state_digest": initial_digest,
            "observation": observation,
            "executed_actions": text.split(f" {ACTION_SEPARATOR} ") if text else [],
            "response_ids": [],
            "status": "ok",
        }
        observation, outcome = _execute(row["executed_actions"], environment, observation)
        rows.append(row | {name: outcome[name] for name in ("action_rewards", "success")})
    return rows
