"""Replay: another reward, filter or update over rollouts that are stored, and how far that leads from the recorded run.

plan        which iterations are replayed, from which checkpoint, with which settings; refuses what cannot be answered
comparison  two updates on the same rollout as numbers: groups, advantages, directions
weights     what an update did to a policy's weights, from two stored checkpoints
"""
