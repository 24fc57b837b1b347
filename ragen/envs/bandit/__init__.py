"""Bandit with two named arms and a single pull."""
