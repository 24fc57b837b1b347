"""Environments: text observations, named actions, Gymnasium's conventions, generators of their own.

bandit, frozen_lake, sokoban   a folder each, with all that is the environment's:
    environment     the class; beside it boards, rooms, maps, solvers, pictures
    demonstrations  a mediocre player, for the embedded policy to imitate
    claims          what reasoning says about the board, held against the board
mixture                        several of them in one run, by tag and share (docs/mixture.md)

base, demonstration, claim     what those are
make, initial_states, variants, check, lettering
"""

from starpo.ragen.envs.make import make

__all__ = ["make"]
