"""Curricula: how often each level of the environment is played, by the success stored so far.

settings  pools, gates
rules     the shares of both, curricula of `ragen.core.registry.CURRICULA`
"""
