"""`starpo play`: boards, keys, alternative forms of actions, and a limit on actions."""

import io

import pytest

from starpo.flows.cli.play import play_in_terminal
from starpo.flows.console.terminal import Console
from starpo.ragen.envs import make
from starpo.ragen.envs.variants import variant


class Typing(Console):
    """Console with scripted input lines."""

    def __init__(self, *lines: str) -> None:
        super().__init__(file=io.StringIO(), width=100)
        self._lines = list(lines)

    def input(self, *_: object, **__: object) -> str:
        return self._lines.pop(0)

    @property
    def shown(self) -> str:
        return self.file.getvalue()


def test_sudoku_solved_in_either_notation() -> None:
    environment = make(variant("Sudoku").settings)
    environment.reset(seed=1)
    puzzle = environment.puzzle
    blanks = [(cell // 4 + 1, cell % 4 + 1, puzzle.solution[cell]) for cell in range(16) if not puzzle.givens[cell]]
    lines = [f"{r},{c},{d}" if c % 2 else f"place {d} at row {r} col {c}" for r, c, d in blanks]
    console = Typing("what", *lines)
    assert play_in_terminal("Sudoku", 1, console=console)
    assert "'what' is not an action here" in console.shown
    assert "the end, reward 15.0" in console.shown


@pytest.mark.parametrize("max_actions", [2, 5])
def test_game_ends_at_action_limit(max_actions: int) -> None:
    console = Typing(*["u", "d", "l", "r"] * 2)
    assert not play_in_terminal("Game2048", 0, max_actions, console)
    assert "keys: u = Up, d = Down, l = Left, r = Right, q = quit" in console.shown
    assert f"{max_actions} actions left" in console.shown
    assert len(console._lines) == 8 - max_actions


def test_cube_turns_have_numbers_and_names() -> None:
    console = Typing("1", "U'", "q")
    assert not play_in_terminal("Rubik", 0, console=console)
    assert "1 = U, 2 = U'" in console.shown
    assert "8 actions left" in console.shown
