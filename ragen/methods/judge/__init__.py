"""Reward component 'judge': a language model answers whether a turn is as it should be.

    turns, template -> a prompt per turn -> Judge -> YES, NO -> rewards

settings   the model, its prompt, the reward
judging    queries the model, each question once
component  prompts from turns, rewards from answers
"""
