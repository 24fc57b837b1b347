"""Rollouts: groups of multi-turn episodes played by an agent.

engine        the protocol: token-id prompts in, token ids and log-probs out
torch/        generation in this process
vllm/         vLLM, in its own environment or this one
openai/       a server with an OpenAI-compatible API, for evaluation
scripted      players without a model: random actions, or the solver of the environment
weights       reading the weights of a folder without instantiating the model
engine_spec   the engine and its options: the only place where engines are created
stream        one interface for sessions that answer in rounds and those that stream
costs         usage of responses, passed on to the stage's records
episode       one episode from reset to end, its limits, forfeits and errors
branches      stored episodes, played again and continued from some of their turns
loop          a shard of groups, turn by turn, as rows of `turns`
turn_images   images of the prompts, on their way to the stage
siblings      the candidates among which a search took each turn's response, on their way to the stage
trial         a few turns of random play without a policy, to try out what reads `turns`
shards        splits an iteration into shards and plays them concurrently
job           the part of a shard's input that all shards of a rollout share
pools/        players of shards: in this process, in worker processes, or in Ray actors
"""
