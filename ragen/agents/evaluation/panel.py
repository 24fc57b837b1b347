"""The evaluation panel: a fixed list of initial states, each known by its digest.

    (settings, num_prompts, panel_seed) -> Panel -> excluded_digests -> seeds of training groups

A panel depends on nothing else, least of all on a run's seed: runs are compared on the same prompts, and training can
be shown by hash never to have begun in a state of its run's panels. A panel of another size or seed shares states with
training; those prompts are found by the same hashes and measured apart (`training_states`).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.initial_states import fresh_env_seed


@dataclass(frozen=True)
class Panel:
    """The prompts of an evaluation.

    Attributes:
        env_seeds: Seeds of the initial states. [num_prompts]
        state_digests: The states' digests, aligned with `env_seeds`. [num_prompts]
        digest: 32 hexadecimal digits over the environment's type, the seeds and the states; equal digests are equal
            prompts, and a change of the environment's generator shows in it.
        is_exhaustive: Has the environment so few initial states that training and evaluation must share them?
        shared: Of a mixture, the states of parts of which that holds.
    """

    env_seeds: tuple[int, ...]
    state_digests: tuple[str, ...]
    digest: str
    is_exhaustive: bool = False
    shared: frozenset[str] = frozenset()

    @property
    def excluded_digests(self) -> frozenset[str]:
        """The initial states that training must not begin in."""
        return frozenset(self.state_digests) - self.shared


@lru_cache(maxsize=64)
def make_panel(settings: EnvironmentSettings, num_prompts: int, panel_seed: int) -> Panel:
    """Draw a panel.

    Prompt i has the seed `derive_seed(panel_seed, "panel", i)`; where that gives a state that an earlier prompt has, it
    is drawn again, so that all states differ. Environments with few initial states (`num_initial_states`) are not drawn
    again: their panels repeat states as the environment does. Prompts of a mixture are dealt to its parts by their
    shares. A smaller panel is the beginning of a larger one.

    Args:
        settings: The environment's settings.
        num_prompts: How many initial states.
        panel_seed: Which ones.

    Raises:
        EnvironmentFault: If the environment runs out of different initial states.
    """
    worlds = {tag: make(part) for tag, part in settings.tagged().items()}
    seeds: list[int] = []
    digests: list[str] = []
    seen: set[str] = set()
    shared: set[str] = set()
    for index, tag in enumerate(settings.dealt(num_prompts)):
        path, world = (panel_seed, "panel", index), worlds[tag]
        seed = fresh_env_seed(settings, *path, excluded=frozenset(), tag=tag)
        world.reset(seed=seed)
        if world.state_digest() in seen:
            seed = fresh_env_seed(settings, *path, excluded=frozenset(seen), tag=tag)
            world.reset(seed=seed)
        seeds.append(seed)
        digests.append(world.state_digest())
        seen.add(digests[-1])
        if world.num_initial_states is not None:
            shared.add(digests[-1])
    identity = [settings.type, *(f"{s} {d}" for s, d in zip(seeds, digests, strict=True))]
    digest = hashlib.blake2b("\n".join(identity).encode(), digest_size=16).hexdigest()
    is_exhaustive = all(world.num_initial_states is not None for world in worlds.values())
    of_parts = frozenset() if is_exhaustive else frozenset(shared)
    return Panel(tuple(seeds), tuple(digests), digest, is_exhaustive, of_parts)


def excluded_states(panels: Iterable[Panel]) -> frozenset[str]:
    """The initial states of any of these panels."""
    return frozenset().union(*(panel.excluded_digests for panel in panels))
