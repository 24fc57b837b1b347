"""A policy that plays: checkpoint -> stored turns. Begin with `rollout.loop`.

prompting   observations -> prompts -> responses -> actions
policy      weights and tokenizers, embedded or from Hugging Face; adapters
rollout     engines, and groups of episodes over many turns
evaluation  panels of unseen initial states, and what success on them says
"""
