"""Cells of a grid, and the direction from one to another in the words of demonstrations."""

Cell = tuple[int, int]
"""Row and column, zero-based from the top left."""


def direction(start: Cell, end: Cell) -> str:
    """Return the direction from `start` to `end`: 'down', 'up left', 'here'."""
    words = [*(["down"] if end[0] > start[0] else ["up"] if end[0] < start[0] else [])]
    words += ["right"] if end[1] > start[1] else ["left"] if end[1] < start[1] else []
    return " ".join(words) or "here"
