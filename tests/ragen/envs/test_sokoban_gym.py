"""Rooms, transitions and rewards compared with the gym-sokoban package itself.

gym-sokoban 0.0.6 imports gym, pkg_resources and imageio. The modules compared here need them only for base classes and
images, so empty stand-ins suffice and the package can be installed with `pip install --no-deps`.
"""

import importlib
import importlib.util
import random
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.sokoban.board import ACTIONS, Board
from starpo.ragen.envs.sokoban.environment import Sokoban, SokobanSettings
from starpo.ragen.envs.sokoban.rooms import reverse_play

PACKAGE = importlib.util.find_spec("gym_sokoban")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="needs: pip install --no-deps gym-sokoban==0.0.6")
GYM_SEARCH_DEPTH = 300
WALL, EMPTY, TARGET, BOX_ON_TARGET, BOX, PLAYER = range(6)


def stand_in(name, **attributes):
    module = ModuleType(name)
    module.__path__ = []
    vars(module).update(attributes)
    return module


@pytest.fixture
def gym_sokoban(monkeypatch):
    """gym-sokoban's environment and room modules, imported with stand-ins that are removed after the test."""
    folder = PACKAGE.submodule_search_locations[0]
    nothing = type("Nothing", (), {"__init__": lambda self, *args, **settings: None})
    modules = [
        stand_in("gym", Env=object, spaces=None),
        stand_in("gym.utils", seeding=None),
        stand_in("gym.spaces", Box=nothing),
        stand_in("gym.spaces.discrete", Discrete=nothing),
        stand_in("pkg_resources"),
        stand_in("imageio"),
        stand_in("gym_sokoban"),
        stand_in("gym_sokoban.envs"),
    ]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    modules[-1].__path__ = [f"{folder}/envs"]
    names = ("room_utils", "render_utils", "sokoban_env")
    for name in names:
        monkeypatch.delitem(sys.modules, f"gym_sokoban.envs.{name}", raising=False)
    loaded = {name: importlib.import_module(f"gym_sokoban.envs.{name}") for name in names}
    yield SimpleNamespace(**loaded)
    for name in names:
        del sys.modules[f"gym_sokoban.envs.{name}"]


class NumpyWithRandom:
    """numpy, except that `random.randint` draws from a given generator."""

    def __init__(self, rng):
        self.random = SimpleNamespace(randint=rng.randrange)

    def __getattr__(self, name):
        return getattr(np, name)


def as_board(fixed, state):
    """Convert gym-sokoban's two arrays to a board."""
    height, width = fixed.shape

    def where(condition):
        return frozenset(np.flatnonzero(condition).tolist())

    boxes = where((state == BOX) | (state == BOX_ON_TARGET))
    return Board(height, width, where(fixed != WALL), where(fixed == TARGET), boxes, min(where(state == PLAYER)))


def as_arrays(board):
    """Convert a board to gym-sokoban's two arrays, with cell kinds as numbers."""
    fixed = np.zeros(board.height * board.width, dtype=int)
    fixed[sorted(board.floor)] = EMPTY
    fixed[sorted(board.targets)] = TARGET
    state = fixed.copy()
    state[sorted(board.boxes - board.targets)] = BOX
    state[sorted(board.boxes & board.targets)] = BOX_ON_TARGET
    state[board.player] = PLAYER
    return fixed.reshape(board.height, board.width), state.reshape(board.height, board.width)


def gym_room(modules, rng, height, width, num_boxes, search_depth):
    """Return the room that gym-sokoban's `reset` makes when all its random numbers come from `rng`."""
    rooms = modules.room_utils
    search = rooms.depth_first_search

    def bounded(*args, **settings):  # only the outermost call passes `ttl` by keyword
        return search(*args, **settings | {"ttl": search_depth} if settings else {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms, "random", rng)
        patch.setattr(rooms, "np", NumpyWithRandom(rng))
        if search_depth != GYM_SEARCH_DEPTH:
            patch.setattr(rooms, "depth_first_search", bounded)
        steps = int(1.7 * (height + width))
        while True:
            try:
                fixed, state, _ = rooms.generate_room((height, width), num_steps=steps, num_boxes=num_boxes)
            except (RuntimeError, RuntimeWarning):
                continue
            return as_board(fixed, state)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("height", "width", "num_boxes", "search_depth", "seeds"),
    [
        # Rooms 90 and 12, 15, 23 depend on telling boxes that returned to a target from boxes that were never pulled.
        (6, 6, 1, 300, [*range(20), 90]),
        (8, 8, 2, 300, [0, 12, 15, 23]),
        (5, 8, 1, 40, range(20)),
        (7, 7, 3, 7, range(10)),
    ],
)
def test_reverse_play_makes_gym_sokobans_rooms(gym_sokoban, height, width, num_boxes, search_depth, seeds):
    for seed in seeds:
        theirs = gym_room(gym_sokoban, python_random(seed), height, width, num_boxes, search_depth)
        ours = reverse_play(python_random(seed), height, width, num_boxes, search_depth)
        assert ours.to_text() == theirs.to_text()


@pytest.mark.ci
@pytest.mark.parametrize(("height", "width", "num_boxes"), [(6, 6, 1), (6, 9, 4)])
def test_transitions_and_rewards_step_by_step(gym_sokoban, monkeypatch, height, width, num_boxes):
    monkeypatch.setattr(gym_sokoban.sokoban_env.SokobanEnv, "render", lambda self, mode: None)
    ours = Sokoban(SokobanSettings(height=height, width=width, num_boxes=num_boxes, search_depth=12))
    rng = random.Random(num_boxes)
    rewards = set()
    for seed in range(150):
        ours.reset(seed=seed)
        theirs = gym_sokoban.sokoban_env.SokobanEnv((height, width), max_steps=10**6, num_boxes=num_boxes, reset=False)
        theirs.room_fixed, theirs.room_state = as_arrays(ours.board)
        theirs.player_position = np.argwhere(theirs.room_state == PLAYER)[0]
        theirs.num_env_steps = 0
        for _ in range(60):
            action = rng.choice(ACTIONS)
            _, their_reward, their_end, their_info = theirs.step(ACTIONS.index(action) + 1)
            _, reward, terminated, truncated, info = ours.step(action)
            assert ours.board == as_board(theirs.room_fixed, theirs.room_state)
            assert (reward, terminated, truncated) == (pytest.approx(their_reward), their_end, False)
            assert info["effective"] == their_info["action.moved_player"]
            assert info["moved_box"] == their_info["action.moved_box"]
            assert info["num_boxes_on_target"] == theirs.boxes_on_target
            rewards.add(round(reward, 6))
            if terminated:
                break
    # Every kind of reward has occurred and was compared: plain, onto a target, off a target, solved.
    assert rewards >= ({-0.1, 10.9} if num_boxes == 1 else {-0.1, 0.9, -1.1, 10.9})
