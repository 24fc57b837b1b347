"""The evaluation panel: a fixed list of initial states, each identified by its digest.

    (settings, num_prompts, panel_seed) -> Panel -> excluded_digests -> seeds of training groups

A panel depends on nothing else, in particular not on a run's seed: runs are compared on the same prompts, and hashes
prove that training never started from a state of its run's panels. A panel of another size or seed may share states
with training; those prompts are found by the same hashes and measured separately (`training_states`).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.initial_states import fresh_env_seed, initial_state


@dataclass(frozen=True)
class Panel:
    """The prompts of an evaluation.

    Attributes:
        env_seeds: Seeds of the initial states. [num_prompts]
        state_digests: The states' digests, aligned with `env_seeds`. [num_prompts]
        digest: 32 hexadecimal digits over the environment's type, the seeds and the states; equal digests mean equal
            prompts, and a change of the environment's generator changes it.
        is_exhaustive: Whether the environment has so few initial states that training and evaluation must share them.
        shared: For a mixture, the states of those parts for which that is the case.
    """

    env_seeds: tuple[int, ...]
    state_digests: tuple[str, ...]
    digest: str
    is_exhaustive: bool = False
    shared: frozenset[str] = frozenset()

    @property
    def excluded_digests(self) -> frozenset[str]:
        """The initial states from which training must not start."""
        return frozenset(self.state_digests) - self.shared


def panel_of(settings: EnvironmentSettings, evaluation: EvaluationConfig) -> Panel:
    """Return the panel that settings of an evaluation define. See `make_panel`."""
    env_seeds = evaluation.env_seeds or ()
    return make_panel(settings, len(env_seeds) or evaluation.num_prompts, evaluation.panel_seed, env_seeds)


def make_panel(
    settings: EnvironmentSettings, num_prompts: int, panel_seed: int, env_seeds: tuple[int, ...] = ()
) -> Panel:
    """Draw a panel.

    Prompt i has the seed `derive_seed(panel_seed, "panel", i)`; if its state duplicates that of an earlier prompt, the
    seed is redrawn, so that all states differ. Environments with few initial states (`num_initial_states`) are not
    redrawn: their panels repeat states as the environment does. Prompts of a mixture are distributed over its parts by
    their shares. Settings whose states are listed in a file give the seeds (`EnvironmentSettings.panel_seeds`). A
    smaller panel is a prefix of a larger one.

    Args:
        settings: The environment's settings.
        num_prompts: Number of initial states.
        panel_seed: Seed that selects them.
        env_seeds: Seeds of the initial states, if they are given; nothing is drawn then.

    Raises:
        EnvironmentFault: If the environment runs out of distinct initial states, or fails.
    """
    return _make_panel(type(settings), settings.model_dump_json(), num_prompts, panel_seed, env_seeds)


@lru_cache(maxsize=64)  # by JSON, as settings with lists or tables have no hash
def _make_panel(
    model: type[EnvironmentSettings], settings_json: str, num_prompts: int, panel_seed: int, env_seeds: tuple[int, ...]
) -> Panel:
    settings = model.model_validate_json(settings_json)
    worlds = {tag: make(part) for tag, part in settings.tagged().items()}
    seeds: list[int] = []
    digests: list[str] = []
    taken: set[str] = set()
    shared: set[str] = set()
    listed = list(env_seeds) or settings.panel_seeds(num_prompts, panel_seed)
    tags = [settings.tag_of(seed) for seed in env_seeds] or settings.assign_parts(num_prompts)
    for index, tag in enumerate(tags):
        path, world = (panel_seed, "panel", index), worlds[tag]
        seed = listed[index] if listed else fresh_env_seed(settings, *path, excluded=frozenset(), tag=tag)
        digest = initial_state(world, tag, seed)
        if digest in taken and not listed:
            seed = fresh_env_seed(settings, *path, excluded=frozenset(taken), tag=tag)
            digest = initial_state(world, tag, seed)
        seeds.append(seed)
        digests.append(digest)
        taken.add(digest)
        if world.num_initial_states is not None:
            shared.add(digest)
    identity = [settings.type, *(f"{s} {d}" for s, d in zip(seeds, digests, strict=True))]
    identity_digest = hashlib.blake2b("\n".join(identity).encode(), digest_size=16).hexdigest()
    is_exhaustive = all(world.num_initial_states is not None for world in worlds.values())
    of_parts = frozenset() if is_exhaustive else frozenset(shared)
    return Panel(tuple(seeds), tuple(digests), identity_digest, is_exhaustive, of_parts)


def excluded_states(panels: Iterable[Panel]) -> frozenset[str]:
    """Return the initial states of all of these panels from which training must not start."""
    return frozenset().union(*(panel.excluded_digests for panel in panels))
