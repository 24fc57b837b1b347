"""Learning: from stored turns, rewards and a selection to a new checkpoint.

learner        the protocol
trajectories   stored rows -> the trajectories and segments a learner trains on
tokens         all response tokens of an update in one order, and as a rectangle
batches        deals trajectories to mini-batches, packs segments into micro-batches
scoring        log-probabilities and entropies of response tokens under a model
critic         the value function
credit         rewards -> advantages and value targets
training       the optimiser steps of one update
ledger         what an update did to each trajectory: `samples` and metrics
validity       how far the policy is from the one that sampled: ratios, effective sample size, KL
torch_learner  one process, CPU or one GPU
optimisers     AdamW, fp32 Muon, schedules
checkpoint     policy, critic and optimiser state as safetensors in a Hugging Face folder
"""
