"""Statements read from free text, and their score against a scene: values by hand, and what must not score."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.envs.statements import Scene, Statement, all_statements, f1, read_statements, score, write_statements

# VAGEN's example: the player at (2, 2), a box above it in the same column, a target below it to the right.
SCENE = Scene((2, 2), {"box": [(1, 2)], "target": [(3, 3)]})
BOX = "The box is directly above the player. "
TARGET = "The target is below and to the right of the player."
SIDES = [
    f"{vertical} and {horizontal} of"
    for vertical, horizontal in itertools.product(("above", "below"), ("left", "right"))
] + ["directly above", "directly below", "directly left of", "directly right of"]


@pytest.mark.parametrize(
    ("text", "thing", "relation"),
    [
        ("The box is above the player.", "box", ("above", None)),
        ("the box is directly above the player", "box", ("above", "same")),
        ("The box is right above me", "box", ("above", "same")),
        ("The box is to the right of the player", "box", (None, "right")),
        ("The box is right of the player, in the same row", "box", ("same", "right")),
        ("the box is 2 rows above and one column to the left of the player", "box", ("above", "left")),
        ("the TARGET will be below-right of you", "target", ("below", "right")),
        ("the goal is in the same row as the player, to the right", "goal", ("same", "right")),
        ("the hole is in the same column as the player", "hole", (None, "same")),
        ("The target is at the same place as the player", "target", ("same", "same")),
        ("The player is to the left of the box", "box", (None, "right")),
        ("the player stands directly below the target", "target", ("above", "same")),
        ("the crate lies north\n and west of the player", "crate", ("above", "left")),
        ("the box is above and below the player", "box", (None, None)),
        ("the box is above the player in the same row", "box", (None, None)),
    ],
)
def test_reading_statements_by_hand(text, thing, relation):
    assert read_statements(text) == [Statement(thing, relation)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the box is not above the player",
        "the box is somewhere near the player",
        "the target is to the right of the box",
        "the player is above the player",
        "the THING is above and to the left of the player; the THING is directly below the player",
        "##P_X_O##",
        "Player: (2, 2)\nGoal: (3, 3)",
    ],
)
def test_other_text_is_no_statement(text):
    assert read_statements(text) == []


def test_the_golden_numbers_of_vagen():
    assert score(read_statements(BOX + TARGET), SCENE, {}) == 1.0
    # The statement about the box is correct, F1 = 1; the target is on the other side, F1 = 0: .5 * 1 + .5 * 0.
    assert score(read_statements(BOX + TARGET.replace("right", "left")), SCENE, {}) == 0.5


def test_weights_and_absent_things():
    statements = read_statements(BOX)
    assert score(statements, SCENE, {"box": 0.25, "target": 0.75}) == 0.25
    assert score(statements, SCENE, {"hole": 1.0}) == 0.0
    without_holes = Scene((0, 0), {"goal": [(0, 1)], "hole": []})
    goal_statements = read_statements("the goal is directly right of the player")
    assert score(goal_statements, without_holes, {}) == 1.0
    # A hole that does not exist: F1(goal) = 1, F1(hole) = 0.
    assert score([*goal_statements, Statement("hole", ("above", "left"))], without_holes, {}) == 0.5


def test_target_and_goal_are_synonyms():
    assert score([Statement("goal", ("below", "right"))], SCENE, {"target": 1.0}) == 1.0
    assert score([Statement("target", ("same", "right"))], Scene((0, 0), {"goal": [(0, 1)]}), {}) == 1.0


def test_f1_of_several_things():
    above, left, right = ("above", "same"), ("same", "left"), ("same", "right")
    assert f1([above], [above, left]) == pytest.approx(2 / 3)  # precision 1, recall 1/2
    assert f1([above, right], [above, left]) == 0.5  # precision 1/2, recall 1/2
    assert f1([above, above], [above, above, left]) == pytest.approx(0.8)  # precision 1, recall 2/3
    assert f1([above], []) == f1([], [above]) == f1([], []) == 0.0


def test_repeated_true_statements_pay_less():
    scores = [score(read_statements(BOX * times + TARGET), SCENE, {"box": 1.0}) for times in (1, 2, 3, 19)]
    assert scores == pytest.approx([1.0, 2 / 3, 0.5, 0.1])  # 2 / (times + 1)


def test_claiming_all_sides_scores_nothing():
    everything = ". ".join(f"The {thing} is {side} the player" for thing in ("box", "target") for side in SIDES)
    assert len(read_statements(everything)) == 16
    assert score(read_statements(everything), SCENE, {}) == 0.0


@given(
    player=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    cells=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4),
    sides=st.lists(st.sampled_from(SIDES), max_size=6),
)
def test_only_exact_statements_score_one(player, cells, sides):
    scene = Scene(player, {"box": cells})
    statements = read_statements(". ".join(f"the box is {side} the player" for side in sides))
    value = score(statements, scene, {})
    assert 0.0 <= value <= 1.0
    assert (value == 1.0) == (sorted(map(str, scene.relations("box"))) == sorted(str(s.relation) for s in statements))


CELLS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4)


@given(player=st.tuples(st.integers(0, 3), st.integers(0, 3)), goals=CELLS, holes=CELLS)
def test_written_statements_are_true_and_complete(player, goals, holes):
    scene = Scene(player, {"goal": goals, "hole": holes})
    text = write_statements(scene)
    assert score(read_statements(text), scene, {}) == (1.0 if goals or holes else 0.0)
    assert len(read_statements(text)) == len(goals) + len(holes)
    assert set(text.split("; ")) <= {*all_statements().split("; "), ""}


@given(
    st.text(), st.lists(st.sampled_from(["the box is ", "above ", "and ", "player", "1 row ", "-", ", "])).map("".join)
)
def test_reading_never_raises(text, soup):
    read_statements(text + soup)


@pytest.mark.ci
def test_hostile_text_takes_linear_time():
    started = time.perf_counter()
    for piece in (
        "the box is ",
        "the box is above and ",
        "box is 1 row 1 row ",
        " " * 10,
        "the box is in the same row as ",
    ):
        read_statements(piece * 50_000)
    assert time.perf_counter() - started < 10
