"""Sizing: resource estimates of a run from its settings alone. Formulas; nothing is loaded or allocated.

settings, architecture --estimate--> Estimate (parameters, memory, tokens, storage) --check_fits--> or an error

architecture  sizes and parameter counts of a transformer; the table of known models
memory        bytes of weights, gradients, optimiser states, activations, logits, caches
passes        a forward and backward pass over a micro-batch
states        what a learner holds of a model
imitation     warm start or fine-tuning, before the first update
tokens        tokens per iteration
storage       bytes of checkpoints and of turns
device        memory of the machine: this one, or a given one
estimate      all of it for one run
fit           whether a run fits, and if not, what to change
hours         time of a run, from a measured speed

Not to be confused with `tasks.loop.plan`, which shows which stages of a run are stored. A GiB is 2^30 bytes.
"""
