"""Configuration: one frozen pydantic model per stage, composed into `StarPOConfig`. Does not import torch.

environment  settings of any registered environment
policy       origin of the first checkpoint; model_files: its files and their digest
agent        how observations become prompts and responses become actions
curriculum   settings of any registered curriculum
rollout      sampling, group and shard sizes, the engine
search       settings of any registered search
engine       what an engine declares: torch_engine, vllm_engine, openai_engine, scripted_engine
reward       components of the reward; reward_components: settings of the built-in ones
filter       which groups are trained on
update       objective, optimiser, learner; objective_options: of single estimators and surrogates
estimation   which settings of an update decide its advantages
learner      what a learner declares: deepspeed_learner
companion    what a companion model declares: a critic, a reference
credit       what settings say against measuring the credit of turns
teacher      settings of a teacher of on-policy distillation; teachers: of each type of it
evaluation   fixed panels
diagnostics  measurements beside success
schedule     settings that change during training
precision    one setting for the dtypes of several parts
starpo       the composition, `StarPOConfig`
load         TOML files, presets that extend each other, overrides by dotted path
explanation  validation errors as readable messages
structure    the tree of settings, derived from the models; reference: docs/settings.md
plugin_calls a call of what a setting names: guarded, named, limited

runtime      locations and resources of this machine, which never affect results; ray_runtime
device       what torch computes on; processor: the CPU, and which instructions it has
"""
