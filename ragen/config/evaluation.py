"""Fixed evaluation panels (RAGEN, training settings)."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.core.settings import Settings
from starpo.ragen.core.visible import quoted

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
"""Name of a variant. It becomes part of stage and metric names, which a slash would split."""


class EvaluationConfig(Settings):
    """What is evaluated, how often, and on which environments."""

    num_prompts: int = Field(256, ge=1, le=100_000)
    """Number of initial states of a panel. They are excluded from training and the warm start, so changing it starts a
    run over."""
    samples_per_prompt: int = Field(1, ge=1, le=1000)
    """Trajectories per initial state. Success is the mean over all of them; pass@k is reported for k = 1, 2, 4, ... up
    to this number."""
    temperature: float = Field(0.5, ge=0.0, le=10.0)
    """Sampling temperature."""
    panel_seed: int = Field(1_000_003, ge=0)
    """Seed of the panel. It is independent of the run's seed, so that runs are compared on the same prompts. Like
    num_prompts, changing it starts a run over."""
    env_seeds: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, min_length=1)
    """Seeds of the initial states, such as those of a stored rollout (`starpo evaluate --on RUN:58`), in place of
    num_prompts states that panel_seed draws. They count whether or not training started from them. None: drawn."""
    every: int = Field(5, ge=1)
    """Evaluate after every n-th update; the first checkpoint and the last are always evaluated."""
    variants: dict[str, EnvironmentConfig] = Field(default_factory=dict)
    """Further environments, by the name used in reports; evaluated at the first and last checkpoint. The states of
    their panels are excluded from training, so changing the variants starts a run over."""

    @field_validator("variants")
    @classmethod
    def _names_are_plain(cls, variants: dict[str, EnvironmentConfig]) -> dict[str, EnvironmentConfig]:
        wrong = [quoted(name) for name in variants if not _NAME.fullmatch(name)]
        if wrong:
            raise ValueError(
                f"a variant is named {', '.join(wrong[:3])}{f' ({len(wrong)} in all)' if len(wrong) > 3 else ''}: "
                "expected a name of 1 to 64 letters (a to z), digits, spaces, dots, dashes and underscores that "
                "begins with a letter or a digit, such as 'SokobanNewVocab'"
            )
        return variants
