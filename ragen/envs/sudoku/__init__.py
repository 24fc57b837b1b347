"""Sudoku. grid: cells and what they see; solver: solutions by backtracking; puzzles: with one solution each;
placements: the grammar of actions."""
