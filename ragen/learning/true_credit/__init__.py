"""True credit: the values before and after every turn of stored trajectories, by continuations that are played.

    turns -> states -> plan -> (continuations are played) -> returns -> values -> credits

states   which turns are credited, and which of them share a state
plan     how many further continuations each state gets
returns  the return of every continuation, by the run's own reward
values   values, advantages and their standard errors: the dataset `credits`
summary  what they say together, beside the rollout
"""
