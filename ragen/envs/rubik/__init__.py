"""The 2 x 2 cube. cube: stickers and turns, from geometry; solver: exact distances by bidirectional search."""
