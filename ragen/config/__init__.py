"""Configuration: one frozen pydantic model per stage, composed into `StarPOConfig`. Does not import torch.

environment  settings of any registered environment
policy       origin of the first checkpoint
agent        how observations become prompts and responses become actions
rollout      sampling, group and shard sizes, the engine
search       settings of any registered search
engine       what an engine declares: vllm_engine, openai_engine
reward       components of the reward
filter       which groups are trained on
update       objective, optimiser, learner
learner      what a learner declares: deepspeed_learner
evaluation   fixed panels
starpo       the composition, `StarPOConfig`
load         TOML files, presets that extend each other, overrides by dotted path
explanation  validation errors as readable messages
structure    the tree of settings, derived from the models
"""
