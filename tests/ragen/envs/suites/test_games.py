"""Games in a folder: which files count, in which order, what the digest covers, and object names as in ALFWorld."""

import json

import pytest
from pydantic import ValidationError

from starpo.ragen.core.errors import ConfigError, EnvironmentFault
from starpo.ragen.envs.suites.alfworld import AlfworldSettings
from starpo.ragen.envs.suites.games import content_digest, folder_digest, game_of, games_of
from starpo.ragen.envs.suites.world import names_of


def put(folder, name, **content):
    """Write a file with the name of a game and only these keys."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def played(folder, split="all"):
    """Return the games of a split, as paths relative to the folder."""
    games = games_of(str(folder), folder_digest(str(folder)), split)
    return [path.relative_to(folder).as_posix() for path in games]


def test_games_are_sorted_by_path(tmp_path):
    for name in (
        "pick_and_place-Mug/trial_2/game.tw-pddl",
        "pick_and_place-Mug/trial_1/game.tw-pddl",
        "pick_and_place_with_movable_recep-Pen/trial_1/game.tw-pddl",
        "pick_and_place-BreadSliced/trial_1/game.tw-pddl",
        "pick_and_place-Mug/trial_1/traj_data.json",
        "a.z8",
        "a.json",
        "zork.z5",
        "alone.z8",
        "alone_too.json",
    ):
        put(tmp_path, name)
    assert played(tmp_path) == [
        "a.z8",
        "pick_and_place-Mug/trial_1/game.tw-pddl",
        "pick_and_place-Mug/trial_2/game.tw-pddl",
    ]


def test_every_tenth_game_is_held_out(tmp_path):
    for number in range(12):
        put(tmp_path, f"{number:02}.tw-pddl")
    assert played(tmp_path, "held_out") == ["00.tw-pddl", "10.tw-pddl"]
    assert sorted(played(tmp_path, "train") + played(tmp_path, "held_out")) == played(tmp_path)
    for number in range(1, 12):
        (tmp_path / f"{number:02}.tw-pddl").unlink()
    with pytest.raises(ConfigError, match="split = 'train' is empty"):
        played(tmp_path, "train")


def test_seed_chooses_a_solvable_game(tmp_path):
    for number in range(4):
        put(tmp_path, f"{number}.tw-pddl", solvable=number != 1)
    games = games_of(str(tmp_path), folder_digest(str(tmp_path)), "all")
    chosen = [game_of(games, seed).name[0] for seed in range(40)]
    assert set(chosen) == {"0", "2", "3"}
    assert chosen == [game_of(games, seed).name[0] for seed in range(40)]
    with pytest.raises(EnvironmentFault, match="are marked as unsolvable"):
        game_of((games[1],), 0)
    games[2].write_text("[]")
    with pytest.raises(EnvironmentFault, match="is not a game: a list; expected an object"):
        game_of((games[2],), 0)


def test_digest_is_of_names_and_sizes(tmp_path):
    path = put(tmp_path, "a/game.tw-pddl", told="one")
    settings = AlfworldSettings(task=str(tmp_path))
    assert settings.digest == folder_digest(str(tmp_path))
    assert AlfworldSettings.model_validate_json(settings.model_dump_json()) == settings
    before = content_digest(path)
    put(tmp_path, "a/game.tw-pddl", told="two")
    assert AlfworldSettings(task=str(tmp_path)) == settings
    assert content_digest(path) != before
    put(tmp_path, "a/game.tw-pddl", told="three")
    assert AlfworldSettings(task=str(tmp_path)) != settings
    put(tmp_path, "b/game.tw-pddl")
    with pytest.raises(ConfigError, match="has changed: its games have the digest"):
        games_of(settings.task, settings.digest, "all")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["readme.txt", "alone.json"], "holds no game among its 2 files"),
        ([], "holds no game among its 0 files"),
        (None, "is not a folder; expected a folder with games"),
    ],
)
def test_missing_games_error_suggests_download(tmp_path, files, message):
    folder = tmp_path / "games"
    for name in files or []:
        put(folder, name)
    if files is not None:
        folder.mkdir(exist_ok=True)
    with pytest.raises(ValidationError, match=message) as refused:
        AlfworldSettings(task=str(folder))
    assert "json_2.1.1/train" in str(refused.value)
    assert "alfworld-download" in str(refused.value)


def test_object_names_count_down_per_kind():
    ids = ["mug_bar__plus_00", "mug_bar__minus_01", "sink_bar__plus_01_bar_sinkbasin", "sink_bar__plus_01", "a_dot_b"]
    assert names_of(ids) == {
        "mug_bar__minus_01": "mug 2",
        "mug_bar__plus_00": "mug 1",
        "sink_bar__plus_01": "sink 1",
        "sink_bar__plus_01_bar_sinkbasin": "sinkbasin 1",
        "a_dot_b": "a.b",
    }
