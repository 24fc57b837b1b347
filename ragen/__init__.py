"""The library: everything a run computes, independent of Prefect. A module imports only from those below it in this
list.

studies      many runs or cells measured together: ablations, sweeps
evidence     analyses of stored runs: report, audits, diagnostics; imported by flows alone, and not by that of training
runs         stages of stored runs: carried out, verified, replayed; where engines and learners run
readiness    what a run lacks; trial: episodes played before a run, and what follows from them
teacher_fit  whether a run's teacher is there and reads the policy's tokens
sizing       resource estimates for a run, before it is started
methods      what plugs into the stages below by the registry, as a user's code does: search, judge, checklist, segments
learning     stored turns -> reward, filter, objectives, learners -> checkpoint; metrics and control of training
context_fit  whether prompts and responses fit into the context; advice: what is out of place with a pretrained model
agents       checkpoint -> prompts, engines, episodes -> stored turns, evaluations
store        artifacts by key, runs by name; independent of their content
config       one settings model per stage
envs         environments and everything specific to them
core         errors, seeds, registries: shared by all
"""
