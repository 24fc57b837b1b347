"""Seeds of initial states for training; states of the evaluation panels are excluded by digest.

panel digests --fresh_env_seed--> env_seed of a training group
"""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from starpo.ragen.core.errors import EnvironmentFault, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.limits import environment_call
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.make import make

_MAX_REDRAWS = 100


def initial_state(world: Environment[Any], tag: str, seed: int) -> str:
    """Reset an environment and return the digest of its initial state.

    Args:
        world: The environment.
        tag: Its tag, for the message.
        seed: Seed of the initial state.

    Raises:
        EnvironmentFault: If the environment fails. An OSError is not converted: it may be temporary.
        CallLimitError: If it takes longer than `CallLimits.environment_s`.
    """
    try:
        with environment_call(tag):
            world.reset(seed=seed)
            return world.state_digest()
    except (StarPOError, OSError):
        raise
    except FOREIGN as error:  # a third-party environment may raise anything
        fault = describe_fault(error, type(world).__module__)
        raise EnvironmentFault(f"{tag}: the initial state of seed {seed} failed: {fault}") from error


def fresh_env_seed(
    settings: EnvironmentSettings, *path: str | int, excluded: frozenset[str], tag: str | None = None
) -> int:
    """Derive the seed of an initial state that is not excluded.

    The first candidate is `derive_seed(*path)`; further ones are `derive_seed(*path, "again", n)`, n = 1, 2, ....
    The choice depends on the arguments alone, so a resumed run makes the same choice.

    Args:
        settings: The environment's settings.
        path: Purpose of the seed, as for `derive_seed`.
        excluded: State digests to avoid, such as those of an evaluation panel. Empty: return the first candidate.
        tag: Part of a mixture to draw for; candidates of other parts are skipped. None: the first candidate's part.

    Returns:
        A seed for `Environment.reset`. An environment with few initial states (`num_initial_states`) gets the first
        candidate, excluded or not, since its panel covers every state available for training.

    Raises:
        EnvironmentFault: If 101 candidates in a row are excluded, or the environment fails.
    """
    tag = settings.tag_of(derive_seed(*path)) if tag is None else tag
    seeds = (seed for seed in _candidates(*path) if settings.tag_of(seed) == tag)
    if not excluded:
        return next(seeds)
    environment = make(settings.tagged()[tag])
    if environment.num_initial_states is not None:
        return next(seeds)
    for seed in islice(seeds, _MAX_REDRAWS + 1):
        if initial_state(environment, tag, seed) not in excluded:
            return seed
    raise EnvironmentFault(
        f"{tag}: {_MAX_REDRAWS + 1} initial states drawn for {path!r}, all of them among the {len(excluded)} "
        "excluded ones; these settings have too few initial states for a panel of this size: "
        "lower evaluation.num_prompts, or use settings with more variety"
    )


def _candidates(*path: str | int) -> Iterator[int]:
    yield derive_seed(*path)
    for redraw in count(1):
        yield derive_seed(*path, "again", redraw)
