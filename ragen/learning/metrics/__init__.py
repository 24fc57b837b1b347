"""Metrics that a run stores while it trains. Pure functions: tables, measurements -> name -> value.

table      the dataset `metrics`: rows, values by name, series over iterations
iteration  an iteration's turns, rewards and selection (RAGEN, training settings), also for each part of a mixture
reasoning  turns with a reasoning, and every reasoning under every prompt
template   whether the reasoning depends on the prompt (RAGEN-2)
gradients  which groups carry a signal, by their reward std (RAGEN-2)
objectives gradient directions of other objectives on the same rollout
credit_comparison  estimates of turns beside their true credit; credit_statistics: by which numbers
glossary   meaning, unit and source of every metric
"""
