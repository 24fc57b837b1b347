"""Environments with text observations and text actions that follow Gymnasium's conventions and own their generators.

bandit, countdown, frozen_lake, game_2048, metamath_qa, questions, rubik, search_qa, sokoban, sudoku, webshop
                one self-contained package per environment:
                  `environment` is the class; next to it boards, rooms, maps, puzzles, libraries, solvers, tiles;
                  `demonstrations` a mediocre player, for the embedded policy to imitate
mixture                        several environments in one run, by tag and share (docs/mixture.md)
suites                         adapters to environments of other packages (docs/suites.md)

base, grammar, demonstration, cells     the shared definitions
plan, statements                        moves and places that free text announces
sources, data_sets                      user files and data sets, identified by content digest
make, initial_states, variants, check   one made, reset, changed, tried
"""

from starpo.ragen.envs.make import make

__all__ = ["make"]
