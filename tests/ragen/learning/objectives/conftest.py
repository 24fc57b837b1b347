"""Property tests of torch functions: the first call of an operation is slow, so hypothesis sets no deadline."""

from hypothesis import settings

settings.register_profile("torch", deadline=None, max_examples=50)
settings.load_profile("torch")
