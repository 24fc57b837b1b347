"""A game of OpenEnv, served by the package: guess a number from 1 to 20 in five guesses. The seed selects the number.

python number_server.py PORT
"""

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    """A guess, as text."""

    message: str


class Hint(Observation):
    """What the player sees."""

    text: str


class NumberGame(Environment):
    """A session of the game."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._number, self._guesses = 0, 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Hint:
        """Draw a number."""
        self._number, self._guesses = random.Random(seed).randint(1, 20), 0
        return Hint(text="Guess a number from 1 to 20.", done=False, reward=0.0)

    def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Hint:
        """Compare the guess with the number."""
        self._guesses += 1
        if action.message == str(self._number):
            return Hint(text="right", done=True, reward=1.0)
        is_lower = action.message.isdecimal() and int(action.message) < self._number
        return Hint(text="higher" if is_lower else "lower", done=self._guesses == 5, reward=0.0)

    @property
    def state(self) -> State:
        """State of the session."""
        return State(step_count=self._guesses)


if __name__ == "__main__":
    app = create_app(NumberGame, Guess, Hint, env_name="number_game", max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
