"""Claims about a cube: the number of single-colour faces after each turn."""

import re
from functools import lru_cache

from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.rubik.cube import FACES, SOLVED, num_whole_faces, turned

_TURN = r"([UDLRFB]'?) (\d+)"
_TERSE = re.compile(rf"{_TURN}(?: {_TURN})*")
_FACE = re.compile(r"(?:Up|Left|Front|Right|Back|Down) (\w) (\w) (\w) (\w)")


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if observation or reasoning cannot be parsed."""
    cube, said = read_cube(observation), reasoning.strip()
    if cube is None or not _TERSE.fullmatch(said):
        return []
    found = []
    for turn, count in re.findall(_TURN, said):
        truth = str(num_whole_faces(turned(cube, turn)))
        found.append(Claim("whole faces after turn", f"{turn} {count}", count == truth, truth))
    return found


@lru_cache(65_536)
def read_cube(observation: str) -> str | None:
    """Parse the stickers of an observation in either form of `ragen.envs.rubik.environment`; None if it is none."""
    lines = observation.splitlines()
    if len(lines) != len(FACES):
        return None
    shown = [_FACE.fullmatch(line) for line in lines]
    if all(shown):
        cube = "".join("".join(face.groups()) for face in shown if face)
    else:
        rows = [line.split() for line in lines]
        if [len(row) for row in rows] != [1, 1, 4, 4, 1, 1]:
            return None
        middle = ["".join(pair) for pair in zip(rows[2], rows[3], strict=True)]
        cube = "".join([rows[0][0] + rows[1][0], *middle, rows[4][0] + rows[5][0]])
    return cube if sorted(cube) == sorted(SOLVED) else None
