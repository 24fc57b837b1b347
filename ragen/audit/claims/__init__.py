"""What reasoning says about the board, held against the board.

claim                         what a claim is, and words for directions
bandit, frozen_lake, sokoban  one reader an environment, found through `ragen.registry.CLAIMS`

A reader takes an observation and the reasoning that answered it, both as recorded, and gives the statements that it can
judge. It reads two languages: the terse one of `ragen.policy.demonstrations`, and plain English sentences about
positions. What it cannot read with certainty it leaves out: no claim is a guess.
"""
