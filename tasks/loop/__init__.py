"""The loops over the stages, plain Python without Prefect, and everything that walks them.

runner       what a loop asks of whoever walks it; `flows.record` carries out, `flows.cli.import_` imports
training     the training loop
rollback     how a collapsed run continues as a fork, with a remedy
replay       the replay loop: reward, filter and update over stored rollouts
plan         every stage of a run and which are stored, by a walk with keys alone
reuse        what a run reuses, and which code made it
run_code     the code that a run uses
fork         a run's settings with one more change from an iteration on
record_walk  a run's record compared with what its settings imply
verify       a run's record and stages verified
"""
