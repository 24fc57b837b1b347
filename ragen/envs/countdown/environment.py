"""Countdown (RAGEN-2, environments): one expression that uses every number once and makes the target.

One answer ends the episode. It pays 1 if it makes the target from the right numbers, 0.1 if it uses the right numbers
but has another value, and otherwise nothing.

    seed -> numbers, target
"""

import random
from fractions import Fraction
from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.countdown.expression import MAX_CHARS, evaluate, numbers_in, write
from starpo.ragen.envs.countdown.puzzles import draw_puzzle, random_expression
from starpo.ragen.envs.grammar import Grammar, Pattern

_TOLERANCE = Fraction(1, 100_000)
_GRAMMAR = Pattern(
    r"[-+*/()0-9 ]+",
    "an expression of whole numbers, + - * / and parentheses",
    "(8 - 3) * 4",
    max_chars=MAX_CHARS,
    separator=None,
)


class CountdownSettings(EnvironmentSettings):
    """Number and size of the numbers, and range of the targets."""

    type: Literal["countdown"] = "countdown"
    num_numbers: int = Field(4, ge=2, le=6)
    """Numbers per puzzle; all of them must be used."""
    max_number: int = Field(99, ge=1, le=1000)
    """Largest number; the smallest is 1."""
    min_target: int = Field(1, ge=1, le=1_000_000)
    """Smallest target."""
    max_target: int = Field(100, ge=1, le=1_000_000)
    """Largest target."""
    numbers_reward: float = Field(0.1, ge=0.0, lt=1.0)
    """Reward for the right numbers with a wrong value; the target pays 1."""

    @model_validator(mode="after")
    def _targets_can_be_made(self) -> "CountdownSettings":
        if self.min_target > self.max_target:
            raise ValueError(f"min_target = {self.min_target} must not exceed max_target = {self.max_target}")
        most = max(self.max_number, 2) ** self.num_numbers
        if self.min_target > most:
            raise ValueError(
                f"{self.num_numbers} numbers up to {self.max_number} make no more than {most}, so no target "
                f"from min_target = {self.min_target} on can be made"
            )
        return self


class Countdown(Environment[CountdownSettings]):
    """Environment with one answer per episode."""

    settings_type = CountdownSettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.countdown.demonstrations:demonstrate"

    def __init__(self, settings: CountdownSettings) -> None:
        super().__init__(settings)
        self._numbers: tuple[int, ...] = ()
        self._target = 0
        self._answer: str | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the current puzzle, sorted."""
        if not self._numbers:
            raise EnvironmentFault("countdown: there is no puzzle before the first reset; call reset")
        return self._numbers

    @property
    def target(self) -> int:
        """Target of the current puzzle."""
        return self._target

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a puzzle that has a solution."""
        settings = self.settings
        self._numbers, self._target = draw_puzzle(
            settings.num_numbers,
            settings.max_number,
            range(settings.min_target, settings.max_target + 1),
            python_random(seed, "countdown"),
        )
        self._answer = None
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Answer the puzzle, which ends the episode."""
        numbers = self.numbers
        if self._answer is not None:
            raise EnvironmentFault("countdown: the episode has ended with the first answer; call reset")
        if _GRAMMAR.read(action) != action:
            raise EnvironmentFault(f"countdown: {action!r} is not an expression; the form is: {_GRAMMAR.form}")
        self._answer = action
        has_numbers = numbers_in(action) == list(numbers)
        reward = 1.0 if self.is_success else self.settings.numbers_reward if has_numbers else 0.0
        made = evaluate(action)
        info = {
            "effective": True,
            "is_success": self.is_success,
            "has_numbers": has_numbers,
            "value": None if made is None else str(made),
        }
        return self.render(), reward, True, False, info

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty: an answer is any expression."""
        return ()

    @property
    def grammar(self) -> Grammar:
        """Digits, + - * / and parentheses, up to 200 characters."""
        return _GRAMMAR

    def random_action(self, rng: random.Random) -> str:
        """Return a random expression that uses the right numbers."""
        return write(random_expression(list(self.numbers), rng))

    @property
    def is_success(self) -> bool:
        """Whether the answer uses every number once and makes the target."""
        if self._answer is None or numbers_in(self._answer) != list(self._numbers):
            return False
        made = evaluate(self._answer)
        return made is not None and abs(made - self._target) < _TOLERANCE

    def rules(self) -> str:
        """Return the task description."""
        return (
            "Make the target from the numbers, with + - * / and parentheses.\n"
            "Use every number exactly once and no other number; intermediate results may be fractions.\n"
            "You have one attempt. An expression that uses the numbers correctly earns 1 if its value is the target, "
            f"otherwise {self.settings.numbers_reward:g}; anything else earns 0."
        )

    def state_digest(self) -> str:
        """Return a digest of the numbers, the target, and the answer."""
        state = (*map(str, self.numbers), "target", str(self._target), "answer", repr(self._answer))
        return blake2b(" ".join(state).encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the target and the numbers; after the answer, also its value."""
        puzzle = f"Target: {self._target}, nums: [{', '.join(map(str, self.numbers))}]"
        if self._answer is None:
            return puzzle
        made = evaluate(self._answer)
        return f"{puzzle}\n{self._answer} = {'no number' if made is None else made}"
