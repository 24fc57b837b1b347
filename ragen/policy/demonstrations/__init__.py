"""Demonstrations of mediocre decisions, from which the embedded policy learns format and facts before StarPO.

base      what a demonstration is
bandit, frozen_lake, sokoban   one demonstrator an environment, found through `ragen.registry.DEMONSTRATORS`
"""
