"""Demonstrations of a mixture: each part by its own demonstrator."""

import random
from itertools import cycle
from math import ceil
from typing import Any

from starpo.ragen.core.lookup import resolve
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.make import environment_type
from starpo.ragen.envs.mixture.environment import Mixture, MixtureSettings

_CYCLE = 60
"""Minimum number of episodes in a cycle of lessons; many shares divide it evenly."""


def demonstrate(environment: Environment[Any], skill: float, rng: random.Random) -> Demonstration:
    """Delegate the decision to the part's own demonstrator.

    Args:
        environment: A mixture within an episode, or the environment of one of its parts.
        skill: Skill of the demonstrator; the same for all parts.
        rng: The only source of randomness.
    """
    part = environment.part if isinstance(environment, Mixture) else environment
    decision: Demonstration = resolve(part.demonstrator)(part, skill, rng)
    return decision


def lessons(settings: MixtureSettings) -> tuple[EnvironmentSettings, ...]:
    """Return the settings to demonstrate in turn: the parts' own lessons, dealt by the shares of the parts."""
    taught = {tag: _lessons(part) for tag, part in settings.tagged().items()}
    total = sum(part.share for part in settings.parts.values())
    number = max(
        _CYCLE, *(ceil(len(part_lessons) * total / settings.parts[tag].share) for tag, part_lessons in taught.items())
    )
    turns = {tag: cycle(part_lessons) for tag, part_lessons in taught.items()}
    return tuple(next(turns[tag]) for tag in settings.assign_parts(number))


def _lessons(part: EnvironmentSettings) -> tuple[EnvironmentSettings, ...]:
    teach = environment_type(part.type).lessons
    return tuple(resolve(teach)(part)) if teach else (part,)
