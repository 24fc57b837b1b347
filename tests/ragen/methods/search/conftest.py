"""Fixtures of the rollout's tests."""

from tests.ragen.agents.rollout.conftest import corridor, job, scripted_engine, tokenizer

__all__ = ["corridor", "job", "scripted_engine", "tokenizer"]
