"""The 2 x 2 cube: 24 stickers and the effect of turns and rotations on them, derived from the sticker positions.

A cube is a string of 24 colours, face by face in the order of `FACES`, each face row by row as it lies in the net

        U
      L F R B
        D

Axes: x to the right, y up, z towards the viewer.
"""

from itertools import product

Vector = tuple[int, int, int]
Permutation = tuple[int, ...]
"""[24] Index of the sticker that moves to each position."""

FACES = ("U", "L", "F", "R", "B", "D")
SOLVED = "WWWWOOOOGGGGRRRRBBBBYYYY"
"""White up, orange left, green in front, red right, blue behind, yellow below."""

_NORMALS: dict[str, Vector] = {
    "U": (0, 1, 0),
    "L": (-1, 0, 0),
    "F": (0, 0, 1),
    "R": (1, 0, 0),
    "B": (0, 0, -1),
    "D": (0, -1, 0),
}
_DOWNWARD: dict[str, Vector] = {"U": (0, 0, 1), "D": (0, 0, -1)} | dict.fromkeys("LFRB", (0, -1, 0))
"""Face -> direction from one row to the next in the net."""


def _cross(a: Vector, b: Vector) -> Vector:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def _dot(a: Vector, b: Vector) -> int:
    return sum(p * q for p, q in zip(a, b, strict=True))


def _combined(*terms: tuple[int, Vector]) -> Vector:
    x, y, z = (sum(factor * vector[axis] for factor, vector in terms) for axis in range(3))
    return (x, y, z)


def _stickers() -> list[tuple[Vector, Vector]]:
    """Return corner and normal of each sticker, in order."""
    stickers = []
    for face in FACES:
        normal, down = _NORMALS[face], _DOWNWARD[face]
        rightward = _cross(normal, down)  # right, up and outward form a right-handed system
        for row, column in product((-1, 1), repeat=2):
            stickers.append((_combined((1, normal), (row, down), (column, rightward)), normal))
    return stickers


def _turned(vector: Vector, axis: Vector) -> Vector:
    """Rotate by a clockwise quarter turn, seen from where the axis points."""
    return _combined((_dot(vector, axis), axis), (-1, _cross(axis, vector)))


def _permutation(axis: Vector, *, is_whole: bool) -> Permutation:
    """Return a clockwise quarter turn of the layer on this side, or of the whole cube."""
    stickers = _stickers()
    comes = list(range(len(stickers)))
    for number, (corner, normal) in enumerate(stickers):
        if is_whole or _dot(corner, axis) == 1:
            comes[stickers.index((_turned(corner, axis), _turned(normal, axis)))] = number
    return tuple(comes)


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(map(permutation.index, range(len(permutation))))


def _rotations() -> tuple[Permutation, ...]:
    """Return the 24 orientations of a cube; the first is the identity."""
    generators = [_permutation(_NORMALS[face], is_whole=True) for face in "UR"]
    orientations = [tuple(range(len(SOLVED)))]
    for held in orientations:
        for generator in generators:
            rotated = tuple(held[place] for place in generator)
            if rotated not in orientations:
                orientations.append(rotated)
    return tuple(orientations)


_CLOCKWISE = {face: _permutation(_NORMALS[face], is_whole=False) for face in FACES}
TURNS: dict[str, Permutation] = {
    name: turn
    for face in "UDLRFB"
    for name, turn in ((face, _CLOCKWISE[face]), (f"{face}'", _inverse(_CLOCKWISE[face])))
}
"""U, U', D, D', L, L', R, R', F, F', B, B': quarter turns, clockwise seen from outside; ' is counter-clockwise."""
ACTIONS = tuple(TURNS)
ROTATIONS = _rotations()
CORNERS: tuple[tuple[int, ...], ...] = tuple(
    tuple(number for number, (at, _) in enumerate(_stickers()) if at == corner) for corner in product((-1, 1), repeat=3)
)
"""The three stickers of each of the eight corners."""


def permuted(cube: str, permutation: Permutation) -> str:
    """Return the cube after a turn or a rotation."""
    return "".join(map(cube.__getitem__, permutation))


def turned(cube: str, action: str) -> str:
    """Return the cube after one of `ACTIONS`."""
    return permuted(cube, TURNS[action])


def faces(cube: str) -> dict[str, str]:
    """Return the four colours of each face, row by row."""
    return {face: cube[4 * number : 4 * number + 4] for number, face in enumerate(FACES)}


def num_whole_faces(cube: str) -> int:
    """Count the faces of a single colour."""
    return sum(len(set(colours)) == 1 for colours in faces(cube).values())


def is_solved(cube: str) -> bool:
    """Whether every face has a single colour, in any orientation of the cube."""
    return num_whole_faces(cube) == len(FACES)
