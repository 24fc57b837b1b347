"""Configuration: one frozen pydantic model a stage, composed into `StarPOConfig`. Imports no torch.

environment  settings of any registered environment
policy       where the first checkpoint comes from
agent        how observations become prompts and responses become actions
rollout      sampling, group and shard sizes, the engine
search       which of several sampled responses a turn takes
vllm_engine  of engine 'vllm'
openai_engine  of engine 'openai'
reward       components of the reward
filter       which groups are trained on
update       objective, optimiser, learner
evaluation   fixed panels
starpo       the composition, `StarPOConfig`
load         TOML files, presets that extend each other, overrides by dotted path
explanation  what is wrong with a setting, in words
structure    the tree of settings, read off the models
"""

from starpo.ragen.config.starpo import StarPOConfig

__all__ = ["StarPOConfig"]
