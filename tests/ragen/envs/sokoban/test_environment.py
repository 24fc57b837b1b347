import numpy as np
import pytest
from pydantic import ValidationError

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.sokoban.board import VOCABULARIES, Board
from starpo.ragen.envs.sokoban.environment import Sokoban, SokobanSettings
from starpo.ragen.envs.sokoban.tiles import TILE_SIZE

TWO_BOXES = Board.from_text("########\n#PX_O__#\n#___√__#\n########")


def playing(board, **settings):
    environment = Sokoban(SokobanSettings(**settings))
    environment.start_from(board)
    return environment


def test_rewards_by_hand():
    environment = playing(Board.from_text("#########\n#PX_OXO_#\n#########"))
    steps = [environment.step(action)[1] for action in ("Up", "Right", "Right", "Left", "Left")]
    # Up: against the wall, -0.1. Right: a push, -0.1. Right: onto the target, -0.1 + 1. Left, Left: walks, -0.1 each.
    assert steps == pytest.approx([-0.1, -0.1, 0.9, -0.1, -0.1])


def test_rewards_off_and_between_targets():
    environment = playing(Board.from_text("########\n#P√O_X_#\n########"))
    assert environment.step("Right")[1] == pytest.approx(-0.1)  # off one target and onto another: no change
    assert environment.step("Right")[1] == pytest.approx(-1.1)  # -0.1 - 1


def test_all_boxes_on_targets_end_episode():
    environment = playing(Board.from_text("######\n#_PXO#\n######"))
    observation, reward, terminated, truncated, info = environment.step("Right")
    assert reward == pytest.approx(10.9)  # -0.1 + 1 + 10
    assert (observation, terminated, truncated) == ("######\n#__P√#\n######", True, False)
    assert info == {"effective": True, "moved_box": True, "num_boxes_on_target": 1, "has_lost_box": False}
    assert environment.is_success
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("Left")


def test_one_of_two_boxes_no_success():
    environment = playing(TWO_BOXES)
    assert environment.step("Right")[2] is False
    assert not environment.is_success
    assert environment.step("Right")[2] is True


def test_info_distinguishes_walks_pushes_losses():
    environment = playing(Board.from_text("######\n#__O_#\n#PX__#\n#____#\n######"))
    blocked = environment.step("Left")[4]
    assert blocked == {"effective": False, "moved_box": False, "num_boxes_on_target": 0, "has_lost_box": False}
    assert environment.step("Down")[4] | {"effective": True, "moved_box": False} == environment.step("Up")[4]
    environment.step("Right")
    lost = environment.step("Right")[4]  # the box is against the right wall now, the target is not
    assert lost == {"effective": True, "moved_box": True, "num_boxes_on_target": 0, "has_lost_box": True}


def test_digest_names_state_only():
    environment = playing(TWO_BOXES)
    start = environment.state_digest()
    assert len(start) == 16
    assert int(start, 16) >= 0
    environment.step("Down")
    assert environment.state_digest() != start
    environment.step("Up")
    assert environment.state_digest() == start
    other_forms = [playing(TWO_BOXES, vocabulary="new"), playing(TWO_BOXES, observation="compact")]
    assert {other.state_digest() for other in other_forms} == {start}


def test_grid_in_both_vocabularies():
    board = Board.from_text("#######\n#S_XO_#\n#_√_X_#\n#######")
    assert playing(board).render() == "#######\n#S_XO_#\n#_√_X_#\n#######"
    assert playing(board, vocabulary="new").render() == "WWWWWWW\nW@.BG.W\nW.C.B.W\nWWWWWWW"


def test_coordinates_zero_based_row_column():
    assert playing(TWO_BOXES, observation="coord").render() == (
        "########\n#PX_O__#\n#___√__#\n########\nPlayer: (1, 1)\nBoxes: (1, 2) (2, 4)\nTargets: (1, 4) (2, 4)"
    )


def test_compact_observation_has_pairs_and_walls():
    assert playing(TWO_BOXES, observation="compact").render() == (
        "P 1 1 X 1 2 X 2 4 O 1 4 O 2 4\n########\n#______#\n#______#\n########"
    )
    assert playing(TWO_BOXES, observation="compact", vocabulary="new").render() == (
        "A 1 1 B 1 2 B 2 4 G 1 4 G 2 4\nWWWWWWWW\nW......W\nW......W\nWWWWWWWW"
    )


@pytest.mark.parametrize("vocabulary", sorted(VOCABULARIES))
@pytest.mark.parametrize("observation", ["grid", "coord"])
def test_rules_explain_vocabulary_symbols(vocabulary, observation):
    rules = Sokoban(SokobanSettings(vocabulary=vocabulary, observation=observation)).rules()
    for name, symbol in VOCABULARIES[vocabulary]._asdict().items():
        assert f"{symbol} = {name.replace('_', ' ')}" in rules
    assert ("zero-based" in rules) == (observation == "coord")


@pytest.mark.parametrize("observation", ["grid", "coord", "compact"])
@pytest.mark.parametrize("vocabulary", sorted(VOCABULARIES))
def test_observations_tell_different_states_apart(observation, vocabulary):
    environment = Sokoban(SokobanSettings(observation=observation, vocabulary=vocabulary))
    digest_of = {}
    for seed in range(100):
        text = environment.reset(seed=seed)[0]
        assert digest_of.setdefault(text, environment.state_digest()) == environment.state_digest()
    assert len(set(digest_of.values())) == len(digest_of)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"generator": "distance", "num_boxes": 2}, "one box, found num_boxes = 2; set num_boxes = 1"),
        ({"generator": "distance", "min_solution": 9, "max_solution": 8}, "min_solution = 9 is above max_solution = 8"),
        ({"generator": "distance", "search_depth": 10}, "search_depth has no effect while generator = 'distance'"),
        ({"min_solution": 3}, "no effect while generator = 'reverse_play'"),
        ({"height": 5, "width": 5, "num_boxes": 5}, "needs 11 cells .* 5x5 has 9 inside"),
        ({"boxes": 1}, "boxes"),
        ({"vocabulary": "emoji"}, "'default' or 'new'"),
    ],
)
def test_impossible_settings_refused_with_advice(settings, message):
    with pytest.raises(ValidationError, match=message):
        SokobanSettings(**settings)


def test_picture_distinguishes_cell_kinds():
    picture = playing(Board.from_text("#######\n#S_XO_#\n#_√_X_#\n#######")).render_rgb()
    assert picture.dtype == np.uint8
    assert picture.shape == (4 * TILE_SIZE, 7 * TILE_SIZE, 3)

    def tile(row, col):
        return picture[row * TILE_SIZE : (row + 1) * TILE_SIZE, col * TILE_SIZE : (col + 1) * TILE_SIZE].tobytes()

    wall, empty, target, crate, done, on_target = tile(0, 0), tile(1, 2), tile(1, 4), tile(1, 3), tile(2, 2), tile(1, 1)
    player = playing(TWO_BOXES).render_rgb()[TILE_SIZE : 2 * TILE_SIZE, TILE_SIZE : 2 * TILE_SIZE].tobytes()
    assert len({wall, empty, target, crate, done, on_target, player}) == 7
    assert tile(2, 4) == crate
    assert tile(2, 1) == empty
