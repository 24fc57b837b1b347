"""Sokoban: push boxes onto targets; irreversible. board: positions, symbols; rooms: random, solvable; solver; tiles."""
