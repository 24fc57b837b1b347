"""Sliding tiles to a goal. board: moves and merges; solver: expectimax of a fixed depth."""
