"""The companions that belong to no single method: models beside the policy that score an update's tokens.

reference  the run's first checkpoint, for KL divergences: frozen, at no memory with LoRA
critic     the value function of PPO: trained beside the policy
teacher    the teacher of on-policy distillation: scored by a stage before the update
loading    a learner's frozen companions, loaded or lent, and with them all of an update's

`ragen.methods.implicit_rewards.companion` is another one, trained before the policy. One of your own: docs/extend.md.
"""
