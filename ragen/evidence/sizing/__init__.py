"""Sizing: resource estimates of a run from its settings alone. Formulas and tables; nothing is loaded or allocated.

settings, architecture --estimate--> Estimate (parameters, memory, tokens, seconds, storage) --check_fits--> or an error

architecture  sizes and parameter counts of a transformer; the table of known models
memory        bytes of weights, gradients, optimiser states, activations, logits, caches
throughput    tokens per iteration, operations, seconds on an assumed device
storage       bytes of checkpoints and of turns
device        memory, bandwidth and arithmetic throughput of devices; the devices of this machine
estimate      all of it for one run
fit           whether a run fits, and if not, what to change

Not to be confused with `flows.plan`, which shows which stages of a run are stored. A GiB is 2^30 bytes.
"""
