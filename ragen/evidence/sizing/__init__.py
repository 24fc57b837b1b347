"""Sizing: what a run will need, from its settings alone. Formulas and tables; nothing is loaded and nothing allocated.

settings, architecture --estimate--> Estimate (parameters, memory, tokens, seconds, storage) --check_fits--> or an error

architecture  sizes of a transformer, its parameters counted; the table of known models
memory        bytes of weights, gradients, optimiser states, activations, logits, caches
throughput    tokens an iteration, operations, seconds by an assumed device
storage       bytes of checkpoints and of turns
device        what a device has: memory, bandwidth, arithmetic; those of this machine
estimate      all of it for one run
fit           does it fit, and if not, what to change

Not to be confused with `flows.plan`, which says which stages of a run are stored. A GiB is 2^30 bytes.
"""
