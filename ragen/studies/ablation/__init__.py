"""Ablations: which setting made the difference, over matched seeds and matched panel prompts. Pure but for the store.

grid TOML -> cells -> (runs, one a cell and seed) -> evaluations -> summary -> record, plot
                                                          `-> bootstrap

grid         what a user asks for: a base, axes, seeds
cells        the axes multiplied out, each cell with its checked configuration
evaluations  what a run's stored evaluations say, prompt by prompt
bootstrap    paired intervals of a difference of success
peak         the best of several checkpoints, and how much of that is luck
summary      evaluations of all cells -> the result
plot         the result as one SVG
"""
