"""Many runs or cells, measured side by side. Begin with `ablation.grid`.

ablation  settings against each other over matched seeds
records   their results in a store, by name
sweep     checkpoints x environments x temperatures x seeds
"""
