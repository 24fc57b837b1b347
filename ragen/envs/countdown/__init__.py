"""Countdown: make a target from numbers. expression: parsing without eval, writing; solver: all trees, by subsets."""
