"""A mixture: several environments in one run, each a part with a tag and a share of the groups.

    seed --hash, by shares--> tag -> the part's environment: state, randomness, actions, rules

A part behaves as it would on its own: the same seed gives the same state with the same digest, so that panels of the
part alone can be checked against training states. `reset` takes any seed; rollouts and panels deal their groups to the
parts exactly (`EnvironmentSettings.assign_parts`) and draw seeds for the part that is due.
"""

import random
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, SerializeAsAny, field_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.settings import NamedModel, Settings
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.grammar import Grammar
from starpo.ragen.envs.make import environment_type, make, settings_type
from starpo.ragen.envs.mixture.shares import deal, draw, weights_of

_TAG = re.compile(r"[A-Za-z0-9_-]{1,32}")
_RESERVED = ("mixture", "seen")
"""Reserved names of evaluation cells: the whole panel, and the prompts seen in training."""

_LEAST_SHARE = 1e-4
"""Minimum share of the total: seeds are redrawn until one belongs to the wanted part."""


class MixturePart(Settings):
    """One environment of a mixture."""

    share: float = Field(1.0, gt=0.0, le=1_000_000.0)
    """Share of the groups, relative to the shares of the other parts."""
    environment: Annotated[SerializeAsAny[EnvironmentSettings], NamedModel(settings_type)]
    """Settings of any environment except a mixture: its `type` and its own fields."""


class MixtureSettings(EnvironmentSettings):
    """The parts of a mixture with their tags and shares."""

    type: Literal["mixture"] = "mixture"
    parts: dict[str, MixturePart] = Field(min_length=1)
    """Tag -> `{ share = 1.0, environment = { type = "...", ... } }`. The tag names the part in the column `env`, in
    metrics (`rollout/success_rate/TAG`) and for `filter.scope = "environment"`. Shares are relative to one another."""

    @field_validator("parts")
    @classmethod
    def _tags_tell_parts_apart(cls, parts: dict[str, MixturePart]) -> dict[str, MixturePart]:
        total = sum(part.share for part in parts.values())
        for tag, part in parts.items():
            kind = part.environment.type
            if not _TAG.fullmatch(tag) or tag in _RESERVED:
                raise ValueError(
                    f"a part is named {quoted(tag)}: expected 1 to 32 letters of a to z, digits, dashes and "
                    f"underscores, and none of {', '.join(_RESERVED)}"
                )
            if isinstance(part.environment, MixtureSettings):
                raise ValueError(f"part '{tag}' is a mixture itself: name its parts here, with shares of the whole")
            if environment_type(kind).plays:
                raise ValueError(f"part '{tag}' is a '{kind}', which plays its episodes itself: train on it alone")
            if tag in ENVIRONMENTS and tag != kind:
                raise ValueError(
                    f"part '{tag}' has the name of an environment but plays another, '{kind}': give it another tag"
                )
            if part.share < _LEAST_SHARE * total:
                raise ValueError(
                    f"part '{tag}' has {part.share:g} of {total:g}, less than one group in {1 / _LEAST_SHARE:.0f}: "
                    "give it a larger share, or leave it out"
                )
        return parts

    def __hash__(self) -> int:
        return hash(tuple(sorted((tag, part.share) for tag, part in self.parts.items())))

    def tagged(self) -> Mapping[str, EnvironmentSettings]:
        """Return the settings of the parts, by tag in alphabetical order."""
        return {tag: self.parts[tag].environment for tag in sorted(self.parts)}

    def tag_of(self, seed: int) -> str:
        """Return the tag that this seed draws, with probabilities proportional to the shares."""
        return draw(self._weights, seed)

    def assign_parts(self, number: int) -> list[str]:
        """See `shares.deal`."""
        return deal(self._weights, number)

    @property
    def _weights(self) -> tuple[tuple[str, int], ...]:
        return weights_of({tag: part.share for tag, part in self.parts.items()})


class Mixture(Environment[MixtureSettings]):
    """Environment that plays each episode with the part that its seed draws."""

    settings_type = MixtureSettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.mixture.demonstrations:demonstrate"
    lessons: ClassVar[str] = "starpo.ragen.envs.mixture.demonstrations:lessons"

    def __init__(self, settings: MixtureSettings) -> None:
        super().__init__(settings)
        self._worlds: dict[str, Environment[Any]] = {}
        self._part: Environment[Any] | None = None

    @property
    def part(self) -> Environment[Any]:
        """Environment of the current episode."""
        if self._part is None:
            raise EnvironmentFault("mixture: there is no part before the first reset; call reset")
        return self._part

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Begin an episode of the part that the seed draws."""
        tag = self.settings.tag_of(seed)
        if tag not in self._worlds:  # lazily, as each episode has its own mixture and needs one part
            self._worlds[tag] = make(self.settings.tagged()[tag], may_ask=self.may_ask)
        self._part = self._worlds[tag]
        self.action_cost = self._part.action_cost  # type: ignore[misc]
        return self._part.reset(seed=seed, dynamics_seed=dynamics_seed)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """See the part."""
        return self.part.step(action)

    def reseed(self, dynamics_seed: int) -> None:
        """See `Environment.reseed`."""
        self.part.reseed(dynamics_seed)

    def clone(self, dynamics_seed: int) -> Self:
        """See `Environment.clone`."""
        clone = type(self)(self.settings)
        clone._part = self.part.clone(dynamics_seed)
        clone.action_cost = self.action_cost  # type: ignore[misc]
        return clone

    @property
    def actions(self) -> tuple[str, ...]:
        """Actions of the part."""
        return self.part.actions

    @property
    def grammar(self) -> Grammar:
        """Grammar of the part."""
        return self.part.grammar

    def random_action(self, rng: random.Random) -> str:
        """See the part."""
        return self.part.random_action(rng)

    @property
    def has_chance(self) -> bool:
        """Whether the part is stochastic; before the first reset, whether any of the parts is."""
        if self._part is not None:
            return self._part.has_chance
        return any(make(part).has_chance for part in self.settings.tagged().values())

    @property
    def max_concurrent_steps(self) -> int:
        """See the part."""
        return self.part.max_concurrent_steps

    @property
    def replay_fault(self) -> str:
        """Fault of the first part that cannot be replayed."""
        faults = {tag: make(part).replay_fault for tag, part in self.settings.tagged().items()}
        return next((f"part {tag}: {fault}" for tag, fault in faults.items() if fault), "")

    @property
    def is_success(self) -> bool:
        """Whether the goal of the part has been reached."""
        return self._part is not None and self._part.is_success

    def rules(self) -> str:
        """Return the rules of the part."""
        return self.part.rules()

    def picture_rules(self) -> str:
        """See the part."""
        return self.part.picture_rules()

    def state_digest(self) -> str:
        """Return the part's own digest, without its tag, so that states seen in training are recognised anywhere."""
        return self.part.state_digest()

    def render(self) -> str:
        """See the part."""
        return self.part.render()

    def render_rgb(self) -> np.ndarray:
        """See the part."""
        return self.part.render_rgb()
