"""Segments: advantages within and between the subgoals that the reasoning names (HiPER, 2602.16165).

estimator  'hierarchical_gae', and what it reads of each turn
"""
