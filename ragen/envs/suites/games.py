"""Games of TextWorld in a user's folder: which are playable, in which order, and the digest that settings keep.

folder --listed--> names and sizes --`games_of`--> the paths of a split

    *.tw-pddl    games of ALFWorld
    *.z8         games made by TextWorld, each with its .json next to it

The digest covers names and sizes, as a folder may hold gigabytes; the bytes of a game are hashed when it is played.
"""

import json
import os
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from starpo.ragen.core.errors import ConfigError, EnvironmentFault
from starpo.ragen.core.seeding import derive_seed

Split = Literal["all", "train", "held_out"]

_HELD_OUT_EVERY = 10
_UNPLAYABLE = ("movable", "Sliced")  # tasks that ALFWorld excludes, by parts of their folder names
_DOWNLOAD = (
    "ALFWorld's are put into $ALFWORLD_DATA, which is ~/.cache/alfworld by default, by `pip install alfworld` and "
    "`alfworld-download`; name json_2.1.1/train, json_2.1.1/valid_seen or json_2.1.1/valid_unseen there. TextWorld's "
    "are made by tw-make"
)


def folder_digest(folder: str) -> str:
    """Return a digest of the names and sizes of a folder's games, 16 hexadecimal digits.

    Raises:
        ConfigError: If there is no such folder, or no game in it.
    """
    names = "\n".join(f"{name} {size}" for name, size in _listed(folder))
    return blake2b(names.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def games_of(folder: str, digest: str, split: Split) -> tuple[Path, ...]:
    """Return the games of a split, in the order of their paths relative to the folder.

    Args:
        folder: Folder of the games.
        digest: Digest of the folder when the settings were made.
        split: `held_out` is every tenth game, starting with the first; `train` is the rest.

    Raises:
        ConfigError: If there is no such folder, its games have changed, or the split is empty.
    """
    paths = _paths(folder, digest)
    held_out = paths[::_HELD_OUT_EVERY]
    rest = tuple(path for place, path in enumerate(paths) if place % _HELD_OUT_EVERY)
    games = {"all": paths, "train": rest, "held_out": held_out}
    if not games[split]:
        raise ConfigError(
            f"{folder} has 1 game, which is held out, so split = '{split}' is empty; choose another split"
        )
    return games[split]


def game_of(games: tuple[Path, ...], seed: int) -> Path:
    """Return the game of a seed; if that is marked as unsolvable, the next one that is not.

    Args:
        games: Games to choose from.
        seed: Seed of an initial state.

    Raises:
        EnvironmentFault: If no game can be solved, or one cannot be read.
    """
    first = derive_seed(seed, "alfworld") % len(games)
    for path in (*games[first:], *games[:first]):
        if path.suffix != ".tw-pddl" or _content(path).get("solvable", True):
            return path
    raise EnvironmentFault(f"all {len(games)} games, such as {games[0]}, are marked as unsolvable")


def content_digest(path: Path) -> str:
    """Return a digest of a game's bytes, 16 hexadecimal digits.

    Raises:
        EnvironmentFault: If the game cannot be read.
    """
    return blake2b(_bytes(path), digest_size=8).hexdigest()


@lru_cache(maxsize=8)
def _paths(folder: str, digest: str) -> tuple[Path, ...]:
    actual = folder_digest(folder)
    if actual != digest:
        raise ConfigError(
            f"{folder} has changed: its games have the digest {actual}, but the settings name {digest}. Restore "
            "the original games, or leave the digest out of the settings to use the games as they are now"
        )
    return tuple(Path(folder, name) for name, _ in _listed(folder) if not name.endswith(".json"))


def _listed(folder: str) -> list[tuple[str, int]]:
    """Return relative names and sizes of all games, and of the .json files of the *.z8 games, sorted.

    Raises:
        ConfigError: If there is no such folder, or no game in it.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder} is not a folder; expected a folder with games (*.tw-pddl, or *.z8). {_DOWNLOAD}")
    names = sorted(
        Path(place, name).relative_to(folder).as_posix() for place, _, files in os.walk(folder) for name in files
    )
    there = set(names)
    games = [name for name in names if name.endswith(".tw-pddl") and not any(part in name for part in _UNPLAYABLE)]
    for name in names:
        beside = name.removesuffix(".z8") + ".json"
        if name.endswith(".z8") and beside in there:
            games += [name, beside]
    if not games:
        raise ConfigError(
            f"{folder} holds no game among its {len(names)} files; expected *.tw-pddl, or *.z8 with the .json of "
            f"TextWorld beside it (a .json alone has no text). {_DOWNLOAD}"
        )
    return [(name, Path(folder, name).stat().st_size) for name in sorted(games)]


def _content(path: Path) -> dict[str, object]:
    try:
        content = json.loads(_bytes(path))
    except ValueError as error:
        raise EnvironmentFault(f"{path} is not a game: {error}") from error
    if not isinstance(content, dict):
        raise EnvironmentFault(f"{path} is not a game: a {type(content).__name__}; expected an object")
    return content


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read ({error.strerror or error})") from error
