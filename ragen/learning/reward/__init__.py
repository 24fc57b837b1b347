"""Rewards: stored turns -> what each turn, and each trajectory, is paid.

components  the parts of a turn's reward, one pure function each
compute     adds them up to totals, returns and normalised returns: dataset `rewards`
"""
