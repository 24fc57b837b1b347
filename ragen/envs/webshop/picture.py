"""A page as an image: the lines of its compact text, with clickable items as buttons."""

import re
import textwrap

import numpy as np

from starpo.ragen.envs.lettering import letter

_WIDTH, _HEIGHT = 640, 400
_MARGIN, _LINE, _SCALE = 14, 26, 2
_CHARACTER = 6 * _SCALE
_GLYPH = 7 * _SCALE
_COLUMNS = (_WIDTH - 2 * _MARGIN) // _CHARACTER
_PAPER, _HEAD, _INK = (250, 249, 246), (226, 232, 240), (40, 44, 52)
_BUTTON, _CHOSEN, _ON_BUTTON = (33, 96, 160), (46, 140, 80), (255, 255, 255)
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[]+)")


def draw(page: str, chosen: tuple[str, ...]) -> np.ndarray:
    """Draw a page; overflow is clipped.

    Args:
        page: Text from `pages.write_compact`; its first line, the instruction, is drawn on a bar.
        chosen: Chosen values, drawn in green.

    Returns:
        uint8 [400, 640, 3].
    """
    picture = np.full((_HEIGHT, _WIDTH, 3), _PAPER, np.uint8)
    head, *lines = page.split("\n")
    head_rows = textwrap.wrap(head, _COLUMNS) or [""]
    top = _MARGIN
    picture[: 2 * _MARGIN + len(head_rows) * _LINE - (_LINE - _GLYPH)] = _HEAD
    for row in head_rows:
        _write(picture, top, _MARGIN, row, _INK)
        top += _LINE
    top += _MARGIN
    for line in lines:
        left = _MARGIN
        for label, text in _PART.findall(line.replace("< ", "").replace(" >", "")):
            for row in textwrap.wrap(label or text, _COLUMNS):
                if left > _MARGIN and left + len(row) * _CHARACTER > _WIDTH - _MARGIN:
                    left, top = _MARGIN, top + _LINE
                if label:
                    _button(picture, top, left, row, _CHOSEN if label in chosen else _BUTTON)
                else:
                    _write(picture, top, left, row, _INK)
                left += (len(row) + 1) * _CHARACTER
        top += _LINE
    return picture


def _button(picture: np.ndarray, top: int, left: int, text: str, colour: tuple[int, int, int]) -> None:
    picture[top - 4 : top + _GLYPH + 4, left - 4 : left + len(text) * _CHARACTER + 2] = colour
    _write(picture, top, left, text, _ON_BUTTON)


def _write(picture: np.ndarray, top: int, left: int, text: str, colour: tuple[int, int, int]) -> None:
    ink = letter(text, _SCALE)
    area = picture[top : top + ink.shape[0], left : left + ink.shape[1]]
    area[ink[: area.shape[0], : area.shape[1]]] = colour
