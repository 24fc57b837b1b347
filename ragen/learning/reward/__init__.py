"""Rewards: stored turns -> what each turn, and each trajectory, is paid.

components  what the environment paid, malformed responses, forfeited actions: pure functions of stored turns
statements  what the reasoning says of where things are
reasoning   its form, and acting on it
judge       what a language model says of a turn; judging: how it is asked, once
compute     adds them up to totals, returns and normalised returns: dataset `rewards`
"""
