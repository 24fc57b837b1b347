"""Several environments in one run. shares: which part a seed plays; demonstrations: by each part's demonstrator."""
