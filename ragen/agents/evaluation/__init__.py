"""Evaluation: fixed panels of initial states, and statistics of a policy's episodes on them.

panel       the initial states, identified by hash and excluded from training
episodes    stored turns -> dataset `episodes`, one row per episode; seen prompts separate
clusters    mean of values in clusters, its standard error and interval
intervals   confidence intervals of a success rate, and unbiased pass@k
comparison  two evaluations: counts by prompt, their difference state by state, and its interval
significance   p-value of paired differences, Holm's correction, states that would tell a difference
paired      paired bootstrap interval over several seeds of training
summary     a cell's episodes -> its metrics, and totals to add up
"""
