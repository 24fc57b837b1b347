"""Evaluation sweeps: checkpoints x environments x temperatures x seeds, one evaluation per cell."""
