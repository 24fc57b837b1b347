"""Rollout by search: every turn's response is the best of several (trajectory search rollouts, arXiv 2602.11767).

settings  best of M, beam, lookahead
play      the loop of all three, a search of `ragen.core.registry.SEARCHES`
"""
