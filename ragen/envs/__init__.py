"""Environments: text observations, actions in words, Gymnasium's conventions, generators of their own.

bandit, countdown, frozen_lake, game_2048, metamath_qa, rubik, search_qa, sokoban, sudoku, webshop
                a folder each, with all that is the environment's:
    environment     the class; beside it boards, rooms, maps, puzzles, libraries, solvers, pictures
    demonstrations  a mediocre player, for the embedded policy to imitate
    claims          what reasoning says about the board, held against the board
mixture                        several of them in one run, by tag and share (docs/mixture.md)
suites                         adapters to environments of other packages (docs/suites.md)

base, grammar, demonstration, claim     what those are
sources                                 files of the user's, named by their content
make, initial_states, variants, check, lettering, page
"""

from starpo.ragen.envs.make import make

__all__ = ["make"]
