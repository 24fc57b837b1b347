"""Many runs or cells, measured side by side. Begin with `ablation.grid`.

ablation  settings against each other over matched seeds
sweep     checkpoints x environments x temperatures x seeds
"""
