"""Several environments in one run.

environment     a mixture of parts; levels: one environment at several values of its settings, as its parts
shares          which part a seed plays
demonstrations  by each part's demonstrator
"""
