"""Sweeps: checkpoints x environments x temperatures x seeds, each cell an evaluation. Pure but for the store.

sweep TOML -> cells -> (evaluate, one task a cell) -> outcomes -> result -> record, heat map, leaderboard

sweep     what a user asks for
cells     what that comes to for the runs as they are now
outcomes  what a stored cell says, prompt by prompt
result    outcomes of all cells -> scores and the leaderboard
heat_map  the scores as one SVG
"""
