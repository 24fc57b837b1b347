"""A policy that learns: stored turns -> checkpoint. Begin with `objectives`, then `learners.update`.

reward      components of a turn's reward
filter      which groups are trained on, by their uncertainty
objectives  the papers in one room: advantages, losses, KL
learners    optimiser steps on one process, a GPU, or ranks; checkpoints
imitation   the embedded policy's warm start: supervised learning on demonstrations
"""
