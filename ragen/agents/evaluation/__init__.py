"""Evaluation: fixed panels of initial states, and what a policy's episodes on them say.

panel            the initial states, known by hash and kept apart from training
training_states  what a checkpoint's training began in, from its lineage
episodes         stored turns -> dataset `episodes`, a row an episode; seen prompts apart
intervals        confidence intervals of a success rate, and unbiased pass@k
summary          a cell's episodes -> its metrics
"""
