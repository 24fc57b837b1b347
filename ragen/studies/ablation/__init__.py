"""Ablations: the effect of settings, compared over matched seeds and matched panel prompts."""
