"""A mixture as its parts' own players play it, each on what is its own."""

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
"""Episodes after which lessons begin again, at the least: many shares come out even in so many."""


def demonstrate(environment: Environment[Any], skill: float, rng: random.Random) -> Demonstration:
    """Let the part's own player decide.

    Args:
        environment: A mixture in play, or the environment of one of its parts.
        skill: As the player takes it; the same for all parts.
        rng: The only source of chance.
    """
    part = environment.part if isinstance(environment, Mixture) else environment
    decision: Demonstration = resolve(part.demonstrator)(part, skill, rng)
    return decision


def lessons(settings: MixtureSettings) -> tuple[EnvironmentSettings, ...]:
    """Settings to demonstrate in turn: the parts' own lessons, dealt by the shares of the parts."""
    taught = {tag: _lessons(part) for tag, part in settings.tagged().items()}
    total = sum(part.share for part in settings.parts.values())
    number = max(_CYCLE, *(ceil(len(own) * total / settings.parts[tag].share) for tag, own in taught.items()))
    turns = {tag: cycle(own) for tag, own in taught.items()}
    return tuple(next(turns[tag]) for tag in settings.dealt(number))


def _lessons(part: EnvironmentSettings) -> tuple[EnvironmentSettings, ...]:
    teach = environment_type(part.type).lessons
    return tuple(resolve(teach)(part)) if teach else (part,)
