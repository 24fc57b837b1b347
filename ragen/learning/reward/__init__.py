"""Rewards: stored turns -> the reward of each turn and the return of each trajectory.

components  environment reward, penalties for malformed responses and forfeited actions: pure functions of stored turns
statements  rewards for statements in the reasoning about where things are
reasoning   rewards for the form of the reasoning, and for acting on it
compute     totals, returns and normalised returns: dataset `rewards`
"""
