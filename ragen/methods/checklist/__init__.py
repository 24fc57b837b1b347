"""Reward component 'checklist': a language model answers several questions about a turn (CM2).

settings   the questions, their weights and dependencies
component  rewards from the answers
"""
