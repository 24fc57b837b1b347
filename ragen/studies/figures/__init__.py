"""Drawings of results, one figure per module.

success  success over updates, and differences from the base: drawn for every ablation
leaderboard  checkpoints of a sweep: success by panel, and differences from the first
league   methods ranked at equal trajectories and at equal time
"""
