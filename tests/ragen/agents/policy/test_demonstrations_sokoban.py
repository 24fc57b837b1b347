import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.envs.sokoban.board import Board
from starpo.ragen.envs.sokoban.demonstrations import MAX_ACTIONS, demonstrate
from starpo.ragen.envs.sokoban.environment import Sokoban, SokobanSettings
from starpo.ragen.envs.sokoban.solver import solve
from starpo.ragen.envs.sokoban.walking import demonstrate as walk


def facing(text, **settings):
    environment = Sokoban(SokobanSettings(**settings))
    environment.start_from(Board.from_text(text))
    return environment


def success_rate(skill, num_episodes, solutions=(6, 10), player=demonstrate, num_turns=5, num_actions=10):
    """Share of rooms with solutions of so many actions that a demonstrator solves within the limits."""
    settings = {"min_solution": solutions[0], "max_solution": solutions[1]}
    environment = Sokoban(SokobanSettings(generator="distance", **settings))
    rng = random.Random(0)
    successes = 0
    for seed in range(num_episodes):
        environment.reset(seed=seed)
        actions_left = num_actions
        for _ in range(num_turns):
            for action in player(environment, skill, rng).actions[:actions_left]:
                environment.step(action)
                actions_left -= 1
                if environment.is_success:
                    break
            if environment.is_success or actions_left == 0:
                break
        successes += environment.is_success
    return successes / num_episodes


def test_skilled_turn_by_hand():
    # The player is at (1, 1), the box at (2, 2), the target at (2, 4): the only solution walks Down and pushes Right.
    environment = facing("######\n#P___#\n#_X_O#\n#____#\n######")
    turn = demonstrate(environment, 1.0, random.Random(0))
    assert turn.think == "X down right O right push right from 2 1"
    assert turn.actions == ("Down", "Right")


def test_lost_box_on_target_says_here():
    # Both boxes are stuck in corners, one of them on its target: no push is possible, and the nearest box is described.
    environment = facing("######\n#√P_X#\n#____#\n#__O_#\n######")
    turn = demonstrate(environment, 1.0, random.Random(0))
    assert turn.think == "X left O here push none"
    assert len(turn.actions) == 1


def test_no_feasible_push_takes_random_action():
    environment = facing("######\n#X__O#\n#__P_#\n######")
    turns = [demonstrate(environment, 0.5, random.Random(seed)) for seed in range(40)]
    assert {turn.think for turn in turns} == {"X up left O right push none"}
    assert {turn.actions for turn in turns} == {("Up",), ("Down",), ("Left",), ("Right",)}


def test_speaks_in_the_environments_vocabulary():
    environment = facing("######\n#P___#\n#_X_O#\n#____#\n######", vocabulary="new")
    assert demonstrate(environment, 1.0, random.Random(0)).think == "B down right G right push right from 2 1"


def test_long_walk_stops_at_turn_end():
    # It is five steps from the far end of the corridor to the cell above the box; the push would be the sixth action.
    environment = facing("########\n#_____P#\n#X######\n#_######\n#O######\n########")
    turn = demonstrate(environment, 1.0, random.Random(0))
    assert turn.think.endswith("push down from 1 1 1 2 1 3 1 4 1 5")  # the whole path, last cell first
    assert turn.actions == ("Left",) * MAX_ACTIONS
    assert demonstrate(environment, 1.0, random.Random(0), max_actions=7).actions == ("Left",) * 5 + ("Down",)


@given(seed=st.integers(0, 10_000), skill=st.floats(0, 1), num_boxes=st.integers(1, 3))
def test_thought_is_true_and_followed(seed, skill, num_boxes):
    environment = Sokoban(SokobanSettings(height=7, width=7, num_boxes=num_boxes, search_depth=15))
    environment.reset(seed=seed)
    before = environment.board
    turn = demonstrate(environment, skill, random.Random(seed), max_actions=100)
    assert environment.board is before  # the environment is not stepped
    after, walked = before, []
    for action in turn.actions:
        moved_from, after = after, after.after(action)
        walked += [after.coordinates(after.player)] if after.boxes == before.boxes else []
    push, _, way = turn.think.split(" push ")[1].partition(" from ")
    if push == "none":
        assert len(turn.actions) == 1
        return
    assert turn.actions[-1].lower() == push
    numbers = list(map(int, way.split()))
    assert list(zip(numbers[::2], numbers[1::2], strict=True))[::-1] == walked
    assert after.boxes != moved_from.boxes == before.boxes
    (box,) = before.boxes - after.boxes
    (row, col), (box_row, box_col) = before.coordinates(before.player), before.coordinates(box)
    words = turn.think.split(" O ")[0].split()[1:]
    assert ("down" in words) == (box_row > row)
    assert ("up" in words) == (box_row < row)
    assert ("right" in words) == (box_col > col)
    assert ("left" in words) == (box_col < col)


def test_full_skill_follows_a_shortest_solution():
    environment = Sokoban(SokobanSettings(height=7, width=7, num_boxes=2, search_depth=10))
    for seed in range(20):
        environment.reset(seed=seed)
        shortest = len(solve(environment.board))
        taken = 0
        while not environment.is_success:
            for action in demonstrate(environment, 1.0, random.Random(0), max_actions=100).actions:
                environment.step(action)
                taken += 1
        assert taken == shortest


@pytest.mark.ci
@pytest.mark.parametrize(("skill", "measured"), [(0.0, 0.124), (0.15, 0.184), (0.25, 0.239), (1.0, 1.0)])
def test_demonstrator_is_mediocre(skill, measured):
    # Measured on 20,000 rooms; three standard errors of 1000 rooms are 3 * sqrt(0.24 * 0.76 / 1000) = 0.041.
    assert success_rate(skill, 1000) == pytest.approx(measured, abs=0.041)


def test_walker_walks_anywhere():
    environment = facing("######\n#P___#\n#_X_O#\n#____#\n######")
    turns = {turn.think: turn for turn in (walk(environment, 0.0, random.Random(seed)) for seed in range(400))}
    ends = set()
    for think, turn in turns.items():
        after = environment.board
        for action in turn.actions:
            after = after.after(action)
        row, column = think.removeprefix("X down right O right go ").split()[:2]
        assert after.coordinates(after.player) == (int(row), int(column))
        ends.add(after.player)
    assert len(ends) == len(turns) == 10  # twelve floor cells, less the player's and the box's
    assert walk(environment, 1.0, random.Random(0)) == demonstrate(environment, 1.0, random.Random(0))


@pytest.mark.parametrize("text", ["######\n#PX_O#\n######", "#####\n#PXO#\n#####"])
def test_walker_without_room_pushes(text):
    assert walk(facing(text), 0.0, random.Random(0)).think.endswith("push right")


def test_walker_without_any_choice():
    assert walk(facing("######\n#X#_O#\n#P####\n######"), 0.0, random.Random(0)).is_resigned


@pytest.mark.ci
@pytest.mark.parametrize(
    ("player", "skill", "measured"), [(demonstrate, 0.0, 0.482), (walk, 0.0, 0.011), (walk, 0.15, 0.332)]
)
def test_walker_pushes_seldom_in_easy_rooms(player, skill, measured):
    # Measured on 20,000 rooms; three standard errors of 1000 rooms are 0.047.
    assert success_rate(skill, 1000, (1, 5), player, num_turns=4) == pytest.approx(measured, abs=0.047)
