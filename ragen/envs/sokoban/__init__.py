"""Boxes onto targets; irreversible. board: rule of motion and alphabets; rooms: random solvable ones; solver; tiles."""
