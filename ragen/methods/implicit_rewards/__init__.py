"""iStar (2509.19199): turns are rewarded by a second policy, trained to prefer the better trajectories of a group.

companion     the second policy as a companion model: start here
preferences   the second policy's step, and the implicit rewards that it gives
estimator     advantages of turns from these rewards
"""
