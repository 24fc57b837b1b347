"""Readers of claims: claims of demonstrations are always true, opposites are detected, and nothing is guessed."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.lookup import resolve
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.claim import direction, sentences
from starpo.ragen.envs.frozen_lake.claims import read_lake
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.make import environment_type, make
from starpo.ragen.envs.sokoban.claims import read_board
from starpo.ragen.envs.sokoban.environment import SokobanSettings

SOKOBAN = [
    SokobanSettings(observation=form, vocabulary=vocabulary, num_boxes=boxes, height=7, width=8)
    for form in ("grid", "coord", "compact")
    for vocabulary in ("default", "new")
    for boxes in (1, 2)
]
LAKES = [FrozenLakeSettings(observation=form, slip=0.0) for form in ("grid", "coord", "compact")]
BANDITS = [BanditSettings(), BanditSettings(names="held_out"), BanditSettings(is_reversed=True)]

_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left", "safe": "risky", "risky": "safe"}


def claims_of(name: str) -> Any:
    return resolve(environment_type(name).claims)


@given(st.sampled_from([*SOKOBAN, *LAKES, *BANDITS]), st.integers(0, 300), st.integers(0, 5), st.floats(0, 1))
def test_demonstrations_never_contradict_the_board(
    settings: EnvironmentSettings, seed: int, num_steps: int, skill: float
) -> None:
    environment, rng = make(settings), random.Random(seed)
    environment.reset(seed=seed)
    for _ in range(0 if settings.type == "bandit" else num_steps):
        environment.step(rng.choice(environment.actions))
        if environment.is_success or getattr(environment, "is_over", False):
            return
    demonstration = resolve(environment_type(settings.type).demonstrator)(environment, skill, rng)
    claims = claims_of(settings.type)(environment.render(), demonstration.think)
    assert claims
    assert [claim for claim in claims if not claim.is_true] == []


@given(st.sampled_from([*SOKOBAN[::2], *LAKES, *BANDITS[:2]]), st.integers(0, 300))
def test_the_opposite_of_a_demonstration_contradicts_it(settings: EnvironmentSettings, seed: int) -> None:
    environment = make(settings)
    environment.reset(seed=seed)
    think = resolve(environment_type(settings.type).demonstrator)(environment, 0.5, random.Random(seed)).think
    words = [_OPPOSITE.get(word, word) for word in think.partition(" push")[0].split()]
    opposite = " ".join(words[: words.index("go")] if "go" in words else words)
    claims = claims_of(settings.type)(environment.render(), opposite)
    assert claims
    assert any(not claim.is_true for claim in claims)


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(["bandit", "frozen_lake", "sokoban"]))
def test_any_text_is_read_without_an_error(observation: str, reasoning: str, env: str) -> None:
    assert isinstance(claims_of(env)(observation, reasoning), list)


ROOM = "#####\n#P__#\n#_X_#\n#__O#\n#####"
LONG = "1" * 5000


@pytest.mark.parametrize(
    ("env", "observation", "reasoning"),
    [
        ("sokoban", ROOM, f"X down right O down right push right from 2 {LONG}"),
        ("sokoban", f"{ROOM}\nPlayer: (1, 1)", f"the player is at (1, {LONG})"),
        ("sokoban", f"P 1 1 X 2 2 O 3 {LONG}\n{ROOM}", "the box is above me"),
        ("frozen_lake", "P 0 0 G 2 3\n____\n_O__\n____\n____", f"G down right go 1 {LONG}"),
        ("frozen_lake", f"P 0 0 G 2 {LONG}\n____", "G down right"),
        ("sudoku", ". 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", f"cell 1 {LONG} row 2 col 3 box 4 left 1"),
        ("sudoku", f"{LONG} 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1", "cell 1 1 row 2 3 4 col 3 2 4 box 2 3 4 left 1"),
    ],
)
def test_a_number_without_end_is_not_judged(env: str, observation: str, reasoning: str) -> None:
    assert claims_of(env)(observation, reasoning) == []


@given(st.sampled_from(SOKOBAN), st.integers(0, 100))
def test_a_board_is_read_from_every_form_as_the_environment_knows_it(settings: SokobanSettings, seed: int) -> None:
    environment = make(settings)
    environment.reset(seed=seed)
    seen = read_board(environment.render())
    assert seen is not None
    assert seen.board == environment.board  # type: ignore[attr-defined]
    assert seen.has_coordinates == (settings.observation != "grid")


@pytest.mark.parametrize(
    "observation",
    [
        "",
        "P 1 1 X 2 2 O 3 3",
        "P 1 1 X 2 2 O 9 3\n#####\n#___#\n#___#\n#___#\n#####",
        "P 0 0 X 2 2 O 3 3\n#####\n#___#\n#___#\n#___#\n#####",
        "P 1 1 X 2 2\n#####\n#___#\n#___#\n#___#\n#####",
        "######\n#_P__#\n#_X__#\n#____#\n######",
        "no board at all",
    ],
)
def test_what_is_no_room_is_not_judged(observation: str) -> None:
    assert read_board(observation) is None


EDGE = "#####\n#PX_#\n#___#\n#__O#\n#####"


@pytest.mark.parametrize(
    ("reasoning", "verdicts"),
    [
        ("X down right O down right push right", [True, True, True]),
        ("X down right O down right push left", [True, True, True]),
        ("X down right O down right push none", [True, True, False]),
        ("X down right O down right push right from 2 1", [True, True, True, True]),
        ("X down right O down right push down from 1 2", [True, True, True, True]),
        ("X down right O down right push left from 2 3 1 3 1 2", [True, True, True, True]),
        ("X down right O down right push left from 2 3 1 2", [True, True, True, False]),  # not adjacent
        ("X down right O down right push left from 2 1", [True, True, True, False]),  # on the wrong side of the box
        ("X down right O down right push left from 2 3 2 2 2 1", [True, True, True, False]),  # through the box
        ("X down right O down right push right from 2 1 2 0 1 0", [True, True, True, False]),  # through the wall
        ("X down right O down right push up from 99 99", [True, True, True, False]),
        ("X down O down right push down", [False, True, True]),
        ("X down right O up push down", [True, False, True]),
        ("X down right O", []),
        ("The box is below the player. The target is to the right of the box.", [True, True]),
        ("the box is above me", [False]),
        ("the target is directly below the box", [False]),
        ("the player is left of the box, so the box is to the right side of the player", [True, True]),
        ("The player is at (1, 1) and the box is at (0, 0)", []),
        ("I should think about the box", []),
    ],
)
def test_sentences_about_a_room(reasoning: str, verdicts: list[bool]) -> None:
    assert [claim.is_true for claim in claims_of("sokoban")(ROOM, reasoning)] == verdicts


def test_a_push_into_a_wall_cannot_be_made() -> None:
    claims = claims_of("sokoban")(EDGE, "X right O down right push up")
    assert [(claim.is_true, claim.truth) for claim in claims][2] == (False, "left or right")


def test_places_are_judged_where_coordinates_are_shown() -> None:
    shown = f"{ROOM}\nPlayer: (1, 1)\nBoxes: (2, 2)\nTargets: (3, 3)"
    claims = claims_of("sokoban")(shown, "The player is at (1, 1) and the box is located at (2, 3).")
    assert [(claim.about, claim.is_true, claim.truth) for claim in claims] == [
        ("place of player", True, "(1, 1)"),
        ("place of box", False, "(2, 2)"),
    ]


def test_with_several_boxes_a_claim_holds_if_it_does_for_one() -> None:
    room = "######\n#PX__#\n#_O__#\n#X___#\n#__O_#\n######"
    claims = claims_of("sokoban")(room, "X down O right push up")
    assert [claim.is_true for claim in claims] == [True, False, True]
    assert claims[1].truth == "down right or up right"


def test_frozen_lake() -> None:
    seen = read_lake("P___\n_O__\n___G\n____")
    assert seen is not None
    assert (seen.player, seen.goal) == ((0, 0), (2, 3))
    judge = claims_of("frozen_lake")
    assert [c.is_true for c in judge("P 0 0 G 2 3\n____\n_O__\n____\n____", "G down right go down")] == [True]
    assert [c.truth for c in judge("P 0 0 G 2 3\n____\n_O__\n____\n____", "G up go up")] == ["down right"]
    assert [c.is_true for c in judge("P___\n_O__\n___G\n____", "the goal is below me")] == [True]


def test_the_bandit_knows_names_and_meanings() -> None:
    claims = claims_of("bandit")("Arms: Trader Teacher", "Trader safe Pirate risky")
    assert [(c.about, c.is_true, c.truth) for c in claims] == [
        ("arm shown", True, "Trader and Teacher"),
        ("meaning of name", False, "risky"),
        ("arm shown", False, "Trader and Teacher"),
        ("meaning of name", True, "risky"),
    ]


@given(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.tuples(st.integers(0, 9), st.integers(0, 9)))
def test_directions_are_opposite_both_ways(start: tuple[int, int], end: tuple[int, int]) -> None:
    back = " ".join(_OPPOSITE.get(word, word) for word in direction(start, end).split())
    assert direction(end, start) == back


def test_a_thing_is_not_compared_with_itself() -> None:
    assert sentences("the player is left of me", {"player": [(0, 0)]}, has_coordinates=True) == []


@pytest.mark.parametrize(
    ("walk", "is_true"),
    [
        ("go 1 0", True),
        ("go 2 3 from 2 2 1 2 0 2 0 1", True),
        ("go 1 1 from 0 1", True),  # the walk ends in the hole
        ("go 1 2 from 1 1 0 1", False),  # through the hole
        ("go 2 3 from 2 2 0 2 0 1", False),  # two of these are not adjacent
        ("go 2 3", False),
        ("go 0 0", True),  # against the edge
    ],
)
def test_a_walk_over_the_ice(walk: str, is_true: bool) -> None:
    goal, way = claims_of("frozen_lake")("P 0 0 G 2 3\n____\n_O__\n____\n____", f"G down right {walk}")
    assert goal.is_true
    assert (way.about, way.said, way.is_true) == ("walk", walk, is_true)
