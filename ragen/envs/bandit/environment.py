"""The bi-arm bandit (RAGEN, environments): one pull of one of two named arms, whose names hint at their risk.

The low-risk arm pays a constant, the high-risk arm pays rarely but more on average: success is pulling the high-risk
arm. Only the names distinguish the arms, so an agent can succeed on unseen names only through their meaning.

    seed -> pair of names, their order        dynamics_seed -> whether the high-risk arm pays
"""

import random
from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info

NAME_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "train": (
        ("Teacher", "Trader"),
        ("Nurse", "Gambler"),
        ("Accountant", "Adventurer"),
        ("Farmer", "Prospector"),
        ("Clerk", "Pirate"),
        ("Gardener", "Racer"),
        ("Baker", "Stuntman"),
        ("Tailor", "Explorer"),
        ("Postman", "Smuggler"),
        ("Dentist", "Daredevil"),
        ("Carpenter", "Inventor"),
        ("Judge", "Speculator"),
    ),
    "held_out": (
        ("Librarian", "Trader"),
        ("Archivist", "Gambler"),
        ("Teacher", "Astronaut"),
        ("Nurse", "Mercenary"),
        ("Pharmacist", "Acrobat"),
        ("Plumber", "Bullfighter"),
        ("Secretary", "Mountaineer"),
        ("Shepherd", "Buccaneer"),
    ),
    "phoenix_dragon": (("Phoenix", "Dragon"),),
}
"""Pairs (name with safe meaning, name with risky meaning). No held-out pair is a training pair: half of them combine a
training name with a new one, half have two new names."""


class BanditSettings(EnvironmentSettings):
    """Names and rewards of the arms."""

    type: Literal["bandit"] = "bandit"
    names: Literal["train", "held_out", "phoenix_dragon"] = "train"
    """Set of name pairs: 12 for training, 8 held out, or the paper's single pair."""
    is_reversed: bool = False
    """BanditRev: the name with the safe meaning is the high-risk arm, and vice versa."""
    low_reward: float = Field(0.15, ge=0.0, le=1000.0)
    """Constant reward of the low-risk arm: 0.15 in the paper, 0.1 in its public code."""
    high_reward: float = Field(1.0, gt=0.0, le=1000.0)
    """Reward of the high-risk arm when it pays."""
    high_probability: float = Field(0.25, gt=0.0, le=1.0)
    """Probability that the high-risk arm pays; otherwise its reward is 0."""

    @model_validator(mode="after")
    def _risk_is_worth_it(self) -> "BanditSettings":
        if self.high_probability * self.high_reward <= self.low_reward:
            raise ValueError(
                f"the arm of high risk pays {self.high_probability * self.high_reward:g} on average and must pay more "
                f"than low_reward = {self.low_reward:g}: success means choosing it"
            )
        return self


class Bandit(Environment[BanditSettings]):
    """Environment with one pull per episode."""

    settings_type = BanditSettings
    action_cost: ClassVar[float] = 0.0
    num_initial_states: ClassVar[int | None] = 24  # the training names: 12 pairs in 2 orders
    demonstrator: ClassVar[str] = "starpo.ragen.envs.bandit.demonstrations:demonstrate"
    lessons: ClassVar[str] = "starpo.ragen.envs.bandit.demonstrations:lessons"

    def __init__(self, settings: BanditSettings) -> None:
        super().__init__(settings)
        self._names: tuple[str, str] | None = None
        self._high_risk_name = ""
        self._pulled: str | None = None
        self._paid = 0.0
        self._chance = random.Random(0)

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a pair of names and their order, both uniformly."""
        rng = python_random(seed, "bandit")
        safe, risky = rng.choice(NAME_PAIRS[self.settings.names])
        self._high_risk_name = safe if self.settings.is_reversed else risky
        self._names = (safe, risky) if rng.random() < 0.5 else (risky, safe)
        self._pulled = None
        self._paid = 0.0
        self.reseed(dynamics_seed)
        return self.render(), {}

    def reseed(self, dynamics_seed: int) -> None:
        """See `Environment.reseed`."""
        self._chance = python_random(dynamics_seed, "bandit pay-out")

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Pull the arm named `action`; this ends the episode."""
        if action not in self.actions:
            raise EnvironmentFault(f"bandit: '{action}' is not an arm; the arms are {', '.join(self.actions)}")
        if self._pulled is not None:
            raise EnvironmentFault("bandit: the episode has ended with the first pull; call reset")
        self._pulled = action
        if action == self._high_risk_name:
            has_paid = self._chance.random() < self.settings.high_probability
            self._paid = self.settings.high_reward if has_paid else 0.0
        else:
            self._paid = self.settings.low_reward
        return self.render(), self._paid, True, False, {"effective": True, "is_success": self.is_success}

    @property
    def actions(self) -> tuple[str, ...]:
        """The two names, in the order shown."""
        if self._names is None:
            raise EnvironmentFault("bandit: there are no arms before the first reset; call reset")
        return self._names

    @property
    def high_risk_arm(self) -> str:
        """The arm to pull for success; not visible in observations."""
        return self._high_risk_name

    @property
    def has_chance(self) -> bool:
        """Whether the high-risk arm pays only sometimes."""
        return self.settings.high_probability < 1.0

    @property
    def is_success(self) -> bool:
        """Whether the high-risk arm was pulled, regardless of whether it paid."""
        return self._pulled is not None and self._pulled == self._high_risk_name

    def rules(self) -> str:
        """Return the task description, which does not reveal which arm is which."""
        first, second = self.actions
        return (
            f"You are playing a bandit game with two arms, {first} and {second}. You pull one arm, and the game ends.\n"
            "One arm always pays a small reward. The other sometimes pays a larger reward and otherwise nothing.\n"
            "The names of the arms hint at which is which. Think about what each name stands for, then choose the arm "
            "that you expect to pay more on average."
        )

    def state_digest(self) -> str:
        """Return a digest of the names in order, the high-risk arm, the pulled arm, and its reward."""
        state = (*self.actions, self._high_risk_name, self._pulled or "", repr(self._paid))
        return blake2b("\n".join(state).encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the arms in order and, after the pull, its reward."""
        arms = f"Arms: {' '.join(self.actions)}"
        return arms if self._pulled is None else f"{arms}\n{self._pulled} pays {self._paid:g}"
