"""Rollouts: agents playing groups of episodes, many turns each.

engine        the protocol: token-id prompts in, token ids and log-probs out
torch_engine  batched generation in this process, KV cache kept across turns; made of
                torch_session   one shard's generation
                batch           which row of the cache each sequence is in
                prompt_tree     prompts that begin alike are read once
                kv_cache        keys and values in slots that all rows share
                sampling        tokens by inverse transform sampling
                decoder         what is asked of a model: fused_decoder (Qwen2, Llama), module_decoder (any other)
                weights         safetensors without the model around them
episode       one episode from reset to end, its limits, forfeits and errors
loop          a shard of groups, turn by turn, as rows of `turns`
shards        splits an iteration into shards and plays them side by side
"""
