"""`Team`: the processes that compute one update together, each on its share of the segments.

Every member holds all trajectories, draws the same mini-batches, and computes what is cheap (credit, metrics) itself;
forward and backward passes are shared out. A number of the whole update is a sum over members, never a mean of their
means: members' shares differ in tokens.
"""

from typing import Protocol

from torch import Tensor


class Team(Protocol):
    """This process's place among those that compute an update together, and what they can ask of each other."""

    rank: int
    """Index of this member."""
    size: int
    """Number of members."""

    def sum(self, values: Tensor) -> Tensor:
        """Sum over members, element by element; all of them must ask, with the same shape."""

    def largest(self, values: Tensor) -> Tensor:
        """Maximum over members, element by element."""


class Alone:
    """A team of one."""

    rank = 0
    size = 1

    def sum(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values
