"""Rollouts: groups of multi-turn episodes played by an agent.

engine        the protocol: token-id prompts in, token ids and log-probs out
torch_engine  batched generation in this process, KV cache kept across turns; consists of
                torch_session   one shard's generation
                batch           mapping of sequences to rows of the cache
                prompt_tree     shared prompt prefixes, computed once
                kv_cache        keys and values in slots that all rows share
                sampling        tokens by inverse transform sampling
                decoder         the model interface: fused_decoder (Qwen2, Llama), module_decoder (any other)
                weights         reading safetensors without instantiating the model
vllm_engine   continuous batching on vLLM, in its own environment or this one; consists of
                vllm_session    one shard's requests in flight
                vllm_weights    in-place weight updates inside vLLM's workers
                vllm_images     images, prepared as the learner reads them
                vllm_probe      check that the loaded weights are the checkpoint's
openai_engine a server with an OpenAI-compatible API, for evaluation; openai_session,
                openai_client, openai_errors
engine_spec   the engine and its options: the only place where engines are created
stream        one interface for sessions that answer in rounds and those that stream
costs         usage of responses, passed on to the stage's records
episode       one episode from reset to end, its limits, forfeits and errors
loop          a shard of groups, turn by turn, as rows of `turns`
turn_images   images of the prompts, on their way to the stage
siblings      the candidates among which a search took each turn's response, on their way to the stage
trial         a few turns of random play without a policy, to try out what reads `turns`
shards        splits an iteration into shards and plays them concurrently
job           the part of a shard's input that all shards of a rollout share
local_player  plays shards in this process
pool          workers that play shards elsewhere: worker_pool, worker (subprocesses); ray_pool, ray_cluster (Ray actors)
"""
