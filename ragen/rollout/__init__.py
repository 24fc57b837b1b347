"""Rollouts: agents playing groups of episodes, many turns each.

engine        the protocol: token-id prompts in, token ids and log-probs out
torch_engine  batched generation in this process, KV cache kept across turns
episode       one episode from reset to end, its limits, forfeits and errors
loop          a shard of groups, turn by turn, as rows of `turns`
shards        splits an iteration into shards and plays them side by side
"""
