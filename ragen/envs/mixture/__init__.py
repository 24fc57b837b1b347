"""Several environments in one run. shares: who plays from which seed; demonstrations: each part by its own player."""
