"""Countdown: a number from given ones. expression: reading and writing, never eval; solver: all trees, by subsets."""
