"""Text rendered on a page: the image of an environment that consists of text only."""

import textwrap

import numpy as np

from starpo.ragen.envs.lettering import letter

_PAPER, _BAND, _INK = (250, 248, 242), (214, 226, 240), (40, 44, 52)
_SCALE, _COLUMNS, _MAX_LINES = 2, 60, 28
_LINE_HEIGHT, _MARGIN = 11 * _SCALE, 6 * _SCALE
_COLUMN_WIDTH = 6 * _SCALE


def page(title: str, text: str) -> np.ndarray:
    """Render a title on a coloured band and text below it, wrapped at 60 characters.

    Args:
        title: One line; truncated to 60 characters.
        text: Lines of any length; beyond 28 wrapped lines, the rest is replaced by an ellipsis in the last one.

    Returns:
        uint8 [height, 744, 3], 22 pixels per line.
    """
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, _COLUMNS) or [""]]
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], "..."]
    width = _COLUMNS * _COLUMN_WIDTH + 2 * _MARGIN
    band = _LINE_HEIGHT + _MARGIN
    picture = np.full((band + len(lines) * _LINE_HEIGHT + 2 * _MARGIN, width, 3), _PAPER, np.uint8)
    picture[:band] = _BAND
    _set(picture, title[:_COLUMNS], _MARGIN)
    for number, line in enumerate(lines):
        _set(picture, line, band + _MARGIN + number * _LINE_HEIGHT)
    return picture


def _set(picture: np.ndarray, line: str, top: int) -> None:
    if line:
        ink = letter(line, _SCALE)
        picture[top : top + ink.shape[0], _MARGIN : _MARGIN + ink.shape[1]][ink] = _INK
