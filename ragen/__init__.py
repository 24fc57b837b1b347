"""The library: everything a run computes, and nothing of Prefect. Imports go down this list, never up.

studies      many runs or cells measured side by side: ablations, sweeps
recompute    stored stages done again: verify, replay, dropped checkpoints
placement    which engine and learner work where, kept loaded between stages; readiness: what a run lacks
evidence     what stored runs say: report, audits, diagnostics, sizing
learning     stored turns -> reward, filter, objectives, learners -> checkpoint
agents       checkpoint -> prompts, engines, episodes -> stored turns, evaluations
work         a stage as a value: key, inputs, and how it is done
store        artifacts by key, runs by name; knows nothing of what is in them
config       one settings model a stage
envs         environments, with all that is theirs
core         errors, seeds, registries: what everybody uses
"""
