"""Seeds of initial states that training may use: those of the evaluation panels are left out, by digest.

panel digests --fresh_env_seed--> env_seed of a training group
"""

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import make

_MAX_REDRAWS = 100


def fresh_env_seed(settings: EnvironmentSettings, *path: str | int, excluded: frozenset[str]) -> int:
    """Derive the seed of an initial state that is not excluded.

    The first candidate is `derive_seed(*path)`; further ones are `derive_seed(*path, "again", n)`, n = 1, 2, ....
    Which candidate is taken depends on nothing but the arguments, so a resumed run takes the same.

    Args:
        settings: The environment's settings.
        path: What the seed is for, as for `derive_seed`.
        excluded: State digests that must not be met, such as those of an evaluation panel. Empty: the first candidate.

    Returns:
        A seed for `Environment.reset`. An environment with few initial states (`num_initial_states`) gets the first
        candidate, excluded or not: a panel of it covers everything there is to train on.

    Raises:
        EnvironmentFault: If 101 candidates in a row are excluded.
    """
    seed = derive_seed(*path)
    if not excluded:
        return seed
    environment = make(settings)
    if environment.num_initial_states is not None:
        return seed
    for redraw in range(1, _MAX_REDRAWS + 2):
        environment.reset(seed=seed)
        if environment.state_digest() not in excluded:
            return seed
        seed = derive_seed(*path, "again", redraw)
    raise EnvironmentFault(
        f"{settings.type}: {_MAX_REDRAWS + 1} initial states drawn for {path!r}, all of them among the {len(excluded)} "
        "excluded ones; these settings have too few initial states for a panel of this size: "
        "lower evaluation.num_prompts, or use settings with more variety"
    )
