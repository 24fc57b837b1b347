"""The library: everything a run computes, and nothing of Prefect.

envs         environments, their checker and variants
agent        prompts, append-only contexts, the parser
policy       the embedded tiny policy and its demonstrations; loading of any causal LM
imitation    the tiny policy's warm start: supervised learning on demonstrations
rollout      engines, and agents playing many turns
reward       components of the reward
filter       which groups are trained on
objectives   advantages, losses, KL: pure functions
learn        learners, optimisers, checkpoints
evaluate     panels, intervals, summaries
diagnostics  metrics from stored tables, the collapse verdict
store        artifacts by key, runs by name
work         a stage as a value: key, inputs, and how it is done
placement    which engine and learner do it, where, kept loaded between stages
verify       stored stages computed again and compared
audit        SQL over what runs have stored, named audits, where an artifact comes from
report       wandb, and the HTML page of a run
config       one model a stage
registry     everything that is chosen by name
"""
