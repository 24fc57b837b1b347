"""Evaluation: fixed panels of initial states, and statistics of a policy's episodes on them.

panel       the initial states, identified by hash and excluded from training
episodes    stored turns -> dataset `episodes`, one row per episode; seen prompts separate
intervals   confidence intervals of a success rate, and unbiased pass@k
paired      paired bootstrap interval of a difference of success rates
comparison  two evaluations: counts by prompt, their difference and its test
summary     a cell's episodes -> its metrics
"""
