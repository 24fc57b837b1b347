"""Evaluation sweeps: checkpoints x environments x temperatures x seeds, each cell an evaluation."""
