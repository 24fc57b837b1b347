"""Learning: from stored turns, rewards and a selection to a new checkpoint.

learner        the protocol
torch_learner  one process, CPU or one GPU
deepspeed/     ranks on several GPUs or cores
data/          stored rows -> trajectories -> response tokens -> micro-batches
models/        trained models: scores, optimisers, adapters, checkpoints
companion      a model beside the policy that scores its tokens: the protocol
companions/    the critic and the reference policy
update         one update, from scores to metrics: start reading here
update_inputs  what it works on and with: models, trajectories, ranks
preparation    what it knows before the first step: scores, credit, inputs of the losses
credit         rewards -> advantages and value targets
loss_inputs    what the policy's loss knows of every token before the first step
policy_loss    the policy's loss over a mini-batch, a micro-batch at a time
value_loss     the critic's loss, likewise
turn_orders    which turns of a mini-batch take a step together
scored_share   the part of the tokens that is scored before and after the steps
micro_batch_runner  runs forward and backward passes over micro-batches
data_parallel  the processes that share an update
ledger         what an update did to each trajectory: `samples` and metrics
trained_tokens  what it did to each token, if that is stored
validity       distance of the policy from the behaviour policy: ratios, effective sample size, KL
measuring      log-probs, gradients, their spread and other objectives' gradients, without a step
turn_advantages  what several objectives would have said of each turn, likewise
gradient_spread  the signal that gradients of groups share, and the noise
supervised     the steps of imitation: the other loop
"""
