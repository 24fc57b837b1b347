"""Images of Sokoban positions, drawn with numpy alone: flat, anti-aliased tiles that differ in shape and colour.

Tiles are drawn once at four times their size and downsampled by averaging.
"""

from functools import cache

import numpy as np

from starpo.ragen.envs.sokoban.board import VOCABULARIES, Board

TILE_SIZE = 32
"""Side length of a cell in pixels."""

_OVERSAMPLING = 4
_KIND = VOCABULARIES["default"]

_Colour = tuple[int, int, int]
_FLOOR: _Colour = (237, 230, 217)
_FLOOR_EDGE: _Colour = (224, 215, 199)
_MORTAR: _Colour = (62, 69, 84)
_BRICK: _Colour = (94, 105, 126)
_BRICK_LIGHT: _Colour = (112, 124, 147)
_TARGET: _Colour = (214, 73, 66)
_WOOD: _Colour = (206, 150, 86)
_WOOD_DARK: _Colour = (134, 87, 41)
_DONE: _Colour = (112, 178, 104)
_DONE_DARK: _Colour = (48, 105, 52)
_BODY: _Colour = (47, 111, 196)
_BODY_DARK: _Colour = (27, 68, 128)
_WHITE: _Colour = (255, 255, 255)
_PUPIL: _Colour = (25, 30, 45)


def draw(board: Board) -> np.ndarray:
    """Draw a position.

    Returns:
        uint8 [height * TILE_SIZE, width * TILE_SIZE, 3], red, green, blue.
    """
    rows = [[_tile(symbol) for symbol in line] for line in board.to_text(_KIND).splitlines()]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)


@cache
def _tile(symbol: str) -> np.ndarray:
    canvas = _Canvas()
    if symbol == _KIND.wall:
        canvas.paint_bricks()
    else:
        canvas.paint_floor()
    if symbol in (_KIND.target, _KIND.player_on_target):
        canvas.paint_target(is_covered=symbol == _KIND.player_on_target)
    if symbol == _KIND.box:
        canvas.paint_crate(_WOOD, _WOOD_DARK)
    if symbol == _KIND.box_on_target:
        canvas.paint_crate(_DONE, _DONE_DARK)
    if symbol in (_KIND.player, _KIND.player_on_target):
        canvas.paint_player()
    return canvas.averaged()


class _Canvas:
    """Canvas of one cell, in coordinates from 0 (left, top) to 1 (right, bottom)."""

    def __init__(self) -> None:
        size = TILE_SIZE * _OVERSAMPLING
        self.y, self.x = (np.mgrid[0:size, 0:size] + 0.5) / size
        self.pixels = np.zeros((size, size, 3))

    def averaged(self) -> np.ndarray:
        """Return the finished tile; read-only, since all boards share it."""
        blocks = self.pixels.reshape(TILE_SIZE, _OVERSAMPLING, TILE_SIZE, _OVERSAMPLING, 3)
        tile = blocks.mean(axis=(1, 3)).round().astype(np.uint8)
        tile.flags.writeable = False
        return tile

    def paint_floor(self) -> None:
        self._fill(self._box(0, 0, 1, 1), _FLOOR_EDGE)
        self._fill(self._box(0.02, 0.02, 0.98, 0.98), _FLOOR)

    def paint_bricks(self) -> None:
        self._fill(self._box(0, 0, 1, 1), _MORTAR)
        for course in range(4):
            top = course / 4
            # Courses are shifted by half a brick; bricks cut by the left edge continue from the neighbouring tile.
            for left in (-0.25, 0.25, 0.75) if course % 2 else (0.0, 0.5):
                self._fill(self._box(left + 0.02, top + 0.02, left + 0.48, top + 0.23), _BRICK)
                self._fill(self._box(left + 0.02, top + 0.02, left + 0.48, top + 0.06), _BRICK_LIGHT)

    def paint_target(self, *, is_covered: bool) -> None:
        ring = self._disc(0.5, 0.5, 0.46) & ~self._disc(0.5, 0.5, 0.37)
        if is_covered:
            self._fill(ring, _TARGET)
            return
        diamond = abs(self.x - 0.5) + abs(self.y - 0.5)
        self._fill((diamond < 0.34) & (diamond > 0.22), _TARGET)
        self._fill(diamond < 0.12, _TARGET)

    def paint_crate(self, light: _Colour, dark: _Colour) -> None:
        self._fill(self._box(0.08, 0.08, 0.92, 0.92), dark)
        self._fill(self._box(0.13, 0.13, 0.87, 0.87), light)
        inside = self._box(0.22, 0.22, 0.78, 0.78)
        self._fill(inside, dark)
        self._fill(self._box(0.25, 0.25, 0.75, 0.75), light)
        for diagonal in (self.x - self.y, self.x + self.y - 1):
            self._fill(inside & (abs(diagonal) < 0.11), dark)
            self._fill(inside & (abs(diagonal) < 0.07), light)

    def paint_player(self) -> None:
        self._fill(self._disc(0.5, 0.5, 0.34), _BODY_DARK)
        self._fill(self._disc(0.5, 0.5, 0.30), _BODY)
        for eye in (0.39, 0.61):
            self._fill(self._disc(eye, 0.45, 0.085), _WHITE)
            self._fill(self._disc(eye, 0.46, 0.04), _PUPIL)
        self._fill(self._disc(0.5, 0.55, 0.13) & (self.y > 0.62), _WHITE)

    def _fill(self, region: np.ndarray, colour: _Colour) -> None:
        self.pixels[region] = colour

    def _box(self, left: float, top: float, right: float, bottom: float) -> np.ndarray:
        return (self.x >= left) & (self.x < right) & (self.y >= top) & (self.y < bottom)

    def _disc(self, x: float, y: float, radius: float) -> np.ndarray:
        return (self.x - x) ** 2 + (self.y - y) ** 2 < radius**2
