"""Policies acting in environments: checkpoint -> stored turns. Start with `rollout.loop`.

prompting   observations -> prompts -> responses -> actions
policy      weights and tokenizers, embedded or from Hugging Face; adapters
rollout     engines, and groups of multi-turn episodes
vision      images in contexts, from pixels to embeddings
evaluation  panels of unseen initial states, and success on them
"""
