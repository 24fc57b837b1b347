"""Hypothesis settings for tests of torch: no deadline, because the first call of an operation is slow."""

from hypothesis import settings

settings.register_profile("torch", deadline=None, max_examples=50)
settings.load_profile("torch")
