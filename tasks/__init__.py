"""Prefect tasks, one a stage: load inputs from the store, call `ragen`, store the output.

stage            what all stages share: the key, skipping what is stored, retries for I/O only
warm_processes   engines and learners kept loaded between stages of one process
warm_start       (configuration) -> checkpoint
rollout          checkpoint -> turns
reward           turns -> rewards
variance_filter  turns, rewards -> selection
diagnose         turns, rewards, selection -> metrics
update           checkpoint, turns, rewards, selection -> checkpoint, samples, metrics
evaluate         checkpoint -> episodes, metrics
"""
