"""FrozenLake: a slippery walk to the goal. map: cells, moves, slip probabilities; solver: value iteration and plans."""
