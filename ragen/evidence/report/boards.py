"""Pictures of every state of a trajectory, by replaying its stored actions.

Observations are made for the model and may contain only coordinates; the environment itself can always be drawn. A
replay is checked against the stored data (state digests of a rollout, observations and return of an evaluated
episode), so a picture never shows another game.

    env settings, seeds, executed actions --Environment--> frames of each turn
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.make import environment_type, settings_type

Frame = dict[str, Any]
"""`{"kind": environment type, "text": rows}` in that type's default symbols, `{"kind": "arms", ...}` for the bandit, or
`{"kind": "text", "text": observation}` for an environment that the page cannot draw."""


@dataclass(frozen=True)
class EpisodeReplay:
    """A replayed evaluation episode.

    Attributes:
        frames: The state before each turn and after each of its actions. [turns][actions + 1]
        rewards: Reward of each action. [turns][actions]
    """

    frames: list[list[Frame]]
    rewards: list[list[float]]


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


def replay_episode(
    environment: Mapping[str, Any],
    *,
    seed: int,
    dynamics_seed: int,
    initial_state_digest: str,
    observations: Sequence[str],
    actions: Sequence[Sequence[str]],
    episode_return: float,
) -> EpisodeReplay | None:
    """Replay an evaluated episode; as it has no state digests, it is checked by the policy's observations.

    Args:
        environment: Settings of the environment, from a manifest.
        seed: Seed of the initial state.
        dynamics_seed: Seed of the stochastic dynamics.
        initial_state_digest: Digest of the initial state.
        observations: Observations before each turn, as the policy saw them. [turns]
        actions: Actions executed in each turn. [turns][actions]
        episode_return: Sum of the environment's rewards.

    Returns:
        The replay; None if the current environment does not reproduce the stored data, fails, or cannot be created on
        this machine.
    """
    frames: list[list[Frame]] = []
    rewards: list[list[float]] = []
    try:
        settings = _played_from(_as_stored(environment), seed)
        witness, drawn = make(settings), make(_as_drawn(settings))
        shown_to_policy, _ = witness.reset(seed=seed, dynamics_seed=dynamics_seed)
        drawn_text, _ = drawn.reset(seed=seed, dynamics_seed=dynamics_seed)
        if witness.state_digest() != initial_state_digest:
            return None
        for observation, executed in zip(observations, actions, strict=True):
            if shown_to_policy != observation:
                return None
            frames.append([_frame(drawn, drawn_text, None, None)])
            rewards.append([])
            for action in executed:
                shown_to_policy, _, _, _, _ = witness.step(action)
                drawn_text, reward, _, _, _ = drawn.step(action)
                frames[-1].append(_frame(drawn, drawn_text, action, reward))
                rewards[-1].append(reward)
    except StarPOError:
        return None
    is_the_same = math.isclose(sum(map(sum, rewards)), episode_return, abs_tol=1e-6)
    return EpisodeReplay(frames, rewards) if is_the_same else None


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
