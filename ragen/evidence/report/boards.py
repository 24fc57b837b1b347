"""Pictures of every state of a trajectory, by replaying its stored actions.

Observations are made for the model and may contain only coordinates; the environment itself can always be drawn. A
replay is checked against the stored digests of states, so a picture never shows another game.

    env settings, seeds, executed actions --Environment--> frames of each turn
"""

from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.make import environment_type, settings_type

Frame = dict[str, Any]
"""`{"kind": environment type, "text": rows}` in that type's default symbols, `{"kind": "arms", ...}` for the bandit, or
`{"kind": "text", "text": observation}` for an environment that the page cannot draw."""


def read_settings(environment: Mapping[str, Any]) -> EnvironmentSettings:
    """Read the settings of an environment from a stored configuration, with the overrides used for drawing.

    Raises:
        ConfigError: If no environment of that type is registered.
    """
    return _as_drawn(_as_stored(environment))


def replay_frames(settings: EnvironmentSettings, turns: Sequence[Mapping[str, Any]]) -> list[list[Frame]] | None:
    """Replay a trajectory.

    Args:
        settings: From `read_settings`.
        turns: Rows of dataset `turns` of one trajectory, in order.

    Returns:
        For each turn the state before it and the state after each of its executed actions. [turns][actions + 1]
        None if the current environment does not reproduce the stored data, fails, or cannot be created on this machine.
    """
    frames: list[list[Frame]] = []
    try:
        environment = make(_as_drawn(_played_from(settings, turns[0]["env_seed"])))
        observation, _ = environment.reset(seed=turns[0]["env_seed"], dynamics_seed=turns[0]["dynamics_seed"])
        if environment.state_digest() != turns[0]["initial_state_digest"]:
            return None
        for turn in turns:
            if turn["origin"] == "search":
                environment.reseed(turn["dynamics_seed"])
            shown = [_frame(environment, observation, None, None)]
            for action in turn["executed_actions"]:
                observation, reward, _, _, _ = environment.step(action)
                shown.append(_frame(environment, observation, action, reward))
            if turn["executed_actions"] and environment.state_digest() != turn["state_digest"]:
                return None
            frames.append(shown)
    except StarPOError:
        return None
    return frames


def _as_stored(environment: Mapping[str, Any]) -> EnvironmentSettings:
    return settings_type(environment["type"]).model_validate(dict(environment))


def _played_from(settings: EnvironmentSettings, seed: int) -> EnvironmentSettings:
    return settings.tagged()[settings.tag_of(seed)]


def _as_drawn(settings: EnvironmentSettings) -> EnvironmentSettings:
    return settings.model_copy(update=environment_type(settings.type).report_settings)


def _frame(environment: Environment[Any], text: str, action: str | None, reward: float | None) -> Frame:
    kind = environment.settings.type
    if kind == "bandit":
        return {"kind": "arms", "arms": list(environment.actions), "pulled": action, "paid": reward}
    return {"kind": kind if environment.report_settings else "text", "text": text}
