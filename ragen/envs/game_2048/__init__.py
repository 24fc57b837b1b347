"""Sliding tiles to a goal. board: moves and merges."""
