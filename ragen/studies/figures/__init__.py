"""Drawings of results, one figure per module.

success  success over updates, and differences from the base: drawn for every ablation
leaderboard  checkpoints of a sweep: success by panel, and differences from the first
comparison  runs: success over updates, and differences from the first
differences  a difference with its interval, as all of them draw it
credit   true advantages of turns against those of each estimator
league   methods ranked at equal trajectories and at equal time
"""
