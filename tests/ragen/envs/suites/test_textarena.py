"""TextArena's single-player games: how one is won, and what cannot be played."""

import pytest

pytest.importorskip("textarena", reason="pip install 'starpo[textarena]'")

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.suites.textarena import TextArenaSettings

GUESS = TextArenaSettings(task="GuessTheNumber-v0")


def test_a_game_is_won_by_the_number():
    environment = make(GUESS)
    environment.reset(seed=1)
    number = environment._game.game_number
    wrong = 1 if number != 1 else 2
    observation, reward, terminated, _, _ = environment.step(f"[{wrong}]")
    assert (reward, terminated) == (0.0, False)
    assert "The target number is" in observation
    observation, reward, terminated, _, info = environment.step(f"[{number}]")
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)
    assert observation.endswith("You guessed the correct number.")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TextArenaSettings(task="Solitude-v0"), "Solitude-v0 cannot be made"),
        (TextArenaSettings(task="TicTacToe-v0"), "is not a game for one player"),
    ],
)
def test_what_cannot_be_played_is_told(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(settings).reset(seed=0)
