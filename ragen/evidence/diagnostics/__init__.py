"""Diagnostics: numbers that say how a run is doing, and a verdict on whether it is collapsing.

metrics    named numbers of one iteration (RAGEN, training settings), and the table that stores them
by_tag     those that everybody looks at, for each part of a mixture
series     the dataset `metrics` as values by name and iteration
smoothing  exponential moving average with bias correction
thresholds when a number counts as a signal, and why
reasoning  turns with a reasoning, and every reasoning under every prompt
template   does the reasoning depend on the prompt? (RAGEN-2)
gradients  which groups carry a signal, by their reward std? (RAGEN-2)
objectives other objectives on the same rollout: where their gradients point
collapse   a verdict, with its signals, from such series (RAGEN, findings)
backtest   which alarm would have told of a collapse, and how early?
"""
