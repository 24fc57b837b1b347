"""Generation in this process, on the CPU or a GPU, with the KV cache kept across turns.

engine       start here: sessions of shards over one loaded policy
session      one shard's generation
batch        mapping of sequences to rows of the cache
prompt_tree  shared prompt prefixes, computed once
kv_cache     keys and values in slots that all rows share
sampling     tokens by inverse transform sampling
decoder      the model interface: fused_decoder (Qwen2, Llama), module_decoder (any other)
"""
