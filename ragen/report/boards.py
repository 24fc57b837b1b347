"""What a trajectory looked like: pictures of every state, by playing its stored actions again.

Observations are made for the model and may hold coordinates alone; the environment itself can always be drawn. A
replay is checked against the stored state digests, so a picture is never of another game.

    env settings, seeds, executed actions --Environment--> frames of each turn
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ragen.envs import make
from ragen.envs.base import Environment, EnvironmentSettings
from ragen.errors import EnvironmentFault
from ragen.registry import ENVIRONMENTS, load

Frame = dict[str, Any]
"""`{"kind": environment type, "text": rows}` in that type's default symbols, `{"kind": "arms", ...}` for the bandit, or
`{"kind": "text", "text": observation}` for an environment that the page cannot draw."""

_DRAWN_AS: dict[str, dict[str, str]] = {
    "sokoban": {"observation": "grid", "vocabulary": "default"},
    "frozen_lake": {"observation": "grid"},
}
"""Settings that change how a state is written and nothing else, set to what the page can draw."""


def read_settings(environment: Mapping[str, Any]) -> EnvironmentSettings:
    """The settings of an environment from a stored configuration, as far as they are drawn.

    Raises:
        ConfigError: If no environment of that type is registered.
    """
    settings = load(ENVIRONMENTS, environment["type"]).settings_type.model_validate(dict(environment))
    return settings.model_copy(update=_DRAWN_AS.get(environment["type"], {}))


def replay_frames(settings: EnvironmentSettings, turns: Sequence[Mapping[str, Any]]) -> list[list[Frame]] | None:
    """Play one trajectory again.

    Args:
        settings: From `read_settings`.
        turns: Rows of dataset `turns` of one trajectory, in order.

    Returns:
        For each turn the state before it and the state after each of its executed actions. [turns][actions + 1].
        None: the environment as it is today does not repeat what was stored, or fails.
    """
    environment = make(settings)
    frames: list[list[Frame]] = []
    try:
        seen, _ = environment.reset(seed=turns[0]["env_seed"], dynamics_seed=turns[0]["dynamics_seed"])
        if environment.state_digest() != turns[0]["initial_state_digest"]:
            return None
        for turn in turns:
            shown = [_frame(environment, seen, None, None)]
            for action in turn["executed_actions"]:
                seen, reward, _, _, _ = environment.step(action)
                shown.append(_frame(environment, seen, action, reward))
            if turn["executed_actions"] and environment.state_digest() != turn["state_digest"]:
                return None
            frames.append(shown)
    except EnvironmentFault:
        return None
    return frames


def _frame(environment: Environment[Any], seen: str, action: str | None, reward: float | None) -> Frame:
    kind = environment.settings.type
    if kind == "bandit":
        return {"kind": "arms", "arms": list(environment.actions), "pulled": action, "paid": reward}
    return {"kind": kind if kind in _DRAWN_AS else "text", "text": seen}
