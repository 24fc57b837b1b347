"""Learning: from stored turns, rewards and a selection to a new checkpoint.

learner        the protocol
trajectories   stored rows -> the trajectories and segments a learner trains on
tokens         all response tokens of an update in one flat order, and as a rectangle
prefix_rows    segments with a common prefix in one row: every prefix is computed once
batches        splits trajectories into mini-batches, packs rows into micro-batches
scoring        log-probabilities and entropies of response tokens under a model
critic         the value function
credit         rewards -> advantages and value targets
data_parallel  the processes that share an update
micro_batch_runner  runs forward and backward passes over micro-batches
trained_model  a model with its optimiser, as the training steps see it
update         one update, from scores to metrics: start reading here
supervised     the steps of imitation: the other loop
update_inputs  what it works on and with: models, trajectories, ranks
preparation    what it knows before the first step: scores, credit, inputs of the losses
policy_loss    the policy's loss over a mini-batch, a micro-batch at a time
turn_orders    which turns of a mini-batch take a step together
measuring      log-probs, gradients, their spread and other objectives' gradients, without a step
gradient_spread  the signal that gradients of groups share, and the noise
scored_share   the part of the tokens that is scored before and after the steps
spans          the part of the response that a token belongs to
ledger         what an update did to each trajectory: `samples` and metrics
validity       distance of the policy from the behaviour policy: ratios, effective sample size, KL
reference      the reference policy of KL divergences
adapters       LoRA adapters: added to a model, merged, disabled
activations    activation checkpointing
torch_learner  one process, CPU or one GPU
deepspeed_learner  ranks on several GPUs or cores; deepspeed_rank: one; deepspeed_model: sharded by ZeRO
ranks          the processes of the ranks, from start to end
trajectory_table  trajectories as they are sent to ranks
optimisers     AdamW, fp32 Muon, schedules
tensor_file    a safetensors file as a stream
checkpoint     policy or adapters, critic and optimiser state as safetensors in a Hugging Face folder
"""
