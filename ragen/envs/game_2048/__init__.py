"""2048: sliding tiles to a goal. board: moves and merges."""
