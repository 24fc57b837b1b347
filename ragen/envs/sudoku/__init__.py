"""Sudoku. grid: cells and their peers; solver: solutions by backtracking; puzzles: with a unique solution each;
placements: the grammar of actions."""
