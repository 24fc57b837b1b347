"""Generation by vLLM's continuous batching, in its own environment or this one.

engine   start here: vLLM's engine with the policy's weights
session  one shard's requests in flight
weights  in-place weight updates inside vLLM's workers
images   images, prepared as the learner reads them
probe    check that the loaded weights are the checkpoint's
"""
