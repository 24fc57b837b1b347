"""Ablations: which setting made the difference, over matched seeds and matched panel prompts."""
