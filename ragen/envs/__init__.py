"""Environments: text observations, named actions, Gymnasium's conventions, generators of their own.

base                the protocol, `Environment`
make                `make(settings)`: an environment from its settings
initial_states      seeds of initial states that stay out of an excluded set
variants            named settings, for listing and playing
check               the executable checker that every environment passes
lettering           words drawn into pictures
bandit              two named arms, one pull
sokoban             boxes onto targets; irreversible
sokoban_board       a position, its rule of motion, the alphabets it is written in
sokoban_rooms       random solvable rooms: played backwards, or at a given distance
sokoban_solver      shortest solutions, distances, pushes within reach
sokoban_tiles       pictures of positions
frozen_lake         a slippery walk to the goal
frozen_lake_map     lakes: cells, moves, chances, random solvable maps
frozen_lake_solver  value iteration and shortest paths on a lake
"""

from ragen.envs.make import make

__all__ = ["make"]
