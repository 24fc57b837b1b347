"""A slippery walk to the goal. map: cells, moves, chances; solver: value iteration and plans."""
