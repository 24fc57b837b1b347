"""Learning: from stored turns, rewards and a selection to a new checkpoint.

learner        the protocol
trajectories   stored rows -> the trajectories and segments a learner trains on
tokens         all response tokens of an update in one order, and as a rectangle
prefix_rows    segments that begin alike, in one row: every beginning is computed once
batches        splits trajectories into mini-batches, packs rows into micro-batches
scoring        log-probabilities and entropies of response tokens under a model
critic         the value function
prm            the process reward model, a second policy: made, and trained to prefer the better trajectory
credit         rewards -> advantages and value targets
data_parallel  the processes that compute an update together; micro_batches: how a pass over many is run
trained_model  a model and its optimiser, as the steps see it
training       the optimiser steps of one update
measured_objectives  gradients of several objectives beside each other, without a step
update         one update, from scores to metrics, whatever holds the models
ledger         what an update did to each trajectory: `samples` and metrics
validity       how far the policy is from the one that sampled: ratios, effective sample size, KL
stored_update  an update on stored datasets, from what its manifest says
reference      the policy that KL divergences are measured to
adapters       LoRA: put into a model, taken out, switched off
activations    layers computed again in the backward pass
torch_learner  one process, CPU or one GPU
deepspeed_...  learner: ranks on several GPUs or cores; rank: one of them; model: what ZeRO cuts up
ranks          the ranks' processes, from start to end
trajectory_table  trajectories as they are sent to ranks
optimisers     AdamW, fp32 Muon, schedules
checkpoint     policy or adapters, critic and optimiser state as safetensors in a Hugging Face folder
"""
