"""TextArena's single-player games: won from their observations alone, replayed, and what cannot be played."""

import re

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.suites.textarena import TextArenaSettings
from starpo.ragen.envs.variants import VARIANTS

GUESS = VARIANTS["GuessTheNumber"].settings
HANOI = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]


def guess_by_halves(environment, seed):
    """Guess by halving the interval that the hints leave; return the rewards and the last info."""
    environment.reset(seed=seed)
    least, most, rewards = 1, 20, []
    while True:
        guess = (least + most) // 2
        observation, reward, is_over, _, info = environment.step(f"[{guess}]")
        rewards.append(reward)
        if is_over:
            return rewards, info
        hint = re.findall(r"target number is (\w+)", observation)[-1]
        least, most = (guess + 1, most) if hint == "higher" else (least, guess - 1)


def test_every_number_is_found_by_halves():
    environment = make(GUESS)
    for seed in range(10):
        rewards, info = guess_by_halves(environment, seed)
        assert info["is_success"]
        assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
        assert len(rewards) <= 5


def test_winning_moves_solve_the_game():
    environment = make(TextArenaSettings(task="TowerOfHanoi-v0"))
    environment.reset(seed=0)
    *before, (_, reward, is_over, _, info) = [environment.step(action) for action in HANOI]
    assert not any(over for _, _, over, _, _ in before)
    assert (reward, is_over, info["is_success"]) == (1.0, True, True)


def test_a_lost_game_is_no_success():
    environment = make(GUESS)
    environment.reset(seed=1)
    wrong = (number for number in range(1, 21) if number != environment._game.game_number)
    is_over = False
    while not is_over:  # the game allows ten guesses
        _, reward, is_over, _, info = environment.step(f"[{next(wrong)}]")
    assert 0.0 < reward < 1.0  # for the distance of the last guess
    assert not info["is_success"]


@pytest.mark.parametrize(
    "settings",
    [
        *(TextArenaSettings(task=f"{game}-v0") for game in ("TowerOfHanoi", "FrozenLake", "Mastermind", "LightsOut")),
        TextArenaSettings(task="Blackjack-v0", has_chance=True),
    ],
    ids=lambda settings: settings.task,
)
def test_a_game_follows_the_conventions(settings):
    assert make(settings).is_replayable
    assert check(settings, should_start_process=False) == []


def test_another_process_plays_the_same():
    assert check(GUESS) == []


def test_undeclared_chance_is_found():
    broken = check(TextArenaSettings(task="Blackjack-v0"), should_start_process=False)
    assert "has_chance is False" in str(broken[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TextArenaSettings(task="Solitude-v0"), "Solitude-v0 cannot be made"),
        (TextArenaSettings(task="TicTacToe-v0"), "is not a game for one player"),
    ],
)
def test_unplayable_task_raises_config_error(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(settings).reset(seed=0)
