"""The loops over the stages, plain Python without Prefect, and everything that walks them.

run          a training run from its first stage to its end: start here
training     the training loop
runner       what a loop asks of whoever walks it; `record` carries out, `flows.cli.import_` imports
record       recording of a run: its record, its state; tracking: its metrics to wandb
iteration_summary  an iteration's metrics as a line
memory_check whether a run fits into memory, before it starts
teaching     which checkpoint teaches a run, and what it says of each rollout
crediting    the credit of an iteration's turns, where the update trains on it
rollback     how a collapsed run continues as a fork, with a remedy
replay       the replay loop: reward, filter and update over stored rollouts
plan         every stage of a run and which are stored, by a walk with keys alone
reuse        what a run reuses, and which code made it
run_code     the code that a run uses
fork         a run's settings with one more change from an iteration on
record_walk  a run's record compared with what its settings imply
verify       a run's record and stages verified
"""
