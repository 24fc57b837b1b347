"""`DataParallelGroup`: the processes that compute one update together, each on its share of the segments.

Every rank holds all trajectories, draws the same mini-batches, and computes the cheap parts (credit, metrics) itself;
only forward and backward passes are split. Quantities of the whole update are sums over ranks, never means of means,
because ranks hold different numbers of tokens.
"""

from typing import Protocol

from torch import Tensor


class DataParallelGroup(Protocol):
    """Rank of this process in an update, and the collectives of its group."""

    rank: int
    """Index of this process."""
    size: int
    """Number of ranks."""

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, element-wise; a collective: all ranks must call it, with the same shape."""

    def largest(self, values: Tensor) -> Tensor:
        """Maximum over ranks, element-wise."""


class SingleProcess:
    """Group of a single process."""

    rank = 0
    size = 1

    def sum(self, values: Tensor) -> Tensor:
        """Return the values unchanged."""
        return values

    def largest(self, values: Tensor) -> Tensor:
        """Return the values unchanged."""
        return values
