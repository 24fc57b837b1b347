"""Diagnostics: numbers that say how a run is doing, and a verdict on whether it is collapsing.

metrics    named numbers of one iteration's turns, rewards and selection (PAPER section 3)
table      those numbers as rows of the dataset `metrics`, and back as series over iterations
smoothing  exponential moving average with bias correction
collapse   a verdict, with its signals, from such series (PAPER section 5)
"""
