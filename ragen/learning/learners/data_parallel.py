"""`DataParallelGroup`: the processes that compute one update together, each on its share of the segments.

Every rank holds all trajectories, draws the same mini-batches, and computes what is cheap (credit, metrics) itself;
forward and backward passes are shared out. A number of the whole update is a sum over ranks, never a mean of their
means: ranks' shares differ in tokens.
"""

from typing import Protocol

from torch import Tensor


class DataParallelGroup(Protocol):
    """This process's place among those that compute an update together, and what they can ask of each other."""

    rank: int
    """Index of this process."""
    size: int
    """Number of ranks."""

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, element by element; all of them must ask, with the same shape."""

    def largest(self, values: Tensor) -> Tensor:
        """Maximum over ranks, element by element."""


class SingleProcess:
    """One process alone."""

    rank = 0
    size = 1

    def sum(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values
