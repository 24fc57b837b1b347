"""Replay: another reward, filter or update on stored rollouts, and how far it diverges from the recorded run.

plan        which iterations are replayed, from which checkpoint, with which settings; rejects invalid replays
comparison  two updates on the same rollout as numbers: groups, advantages, directions
weights     the change of a policy's weights in an update, from two stored checkpoints
"""
