"""The fixtures of the learners' tests."""

from tests.ragen.learning.learners.conftest import context, make_trajectories, policy_folder

__all__ = ["context", "make_trajectories", "policy_folder"]
