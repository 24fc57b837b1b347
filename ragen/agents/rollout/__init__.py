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
vllm_engine   continuous batching on vLLM, in its own environment or this one; made of
                vllm_session    one shard's requests in flight
                vllm_weights    weights put over the present ones, inside vLLM's workers
                vllm_probe      are they the checkpoint's?
                vllm_python     where vLLM is
openai_engine a server that speaks OpenAI's protocol, for evaluation; openai_session,
                openai_client, openai_errors
engine_spec   which engine, told how: the one place where engines are made
stream        one way to drive sessions that answer in rounds and those that stream
costs         what responses took, on its way to the stage's records
episode       one episode from reset to end, its limits, forfeits and errors
loop          a shard of groups, turn by turn, as rows of `turns`
search        the same, each turn's response chosen among several; siblings, what was passed over, on its way
shards        splits an iteration into shards and plays them side by side
"""
