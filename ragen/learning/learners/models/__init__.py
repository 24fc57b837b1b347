"""The models of an update: their scores, optimisers, adapters and checkpoints.

trained_model  a model with its optimiser, as the training steps see it
scoring        log-probabilities and entropies of response tokens under a model
critic         the value function
adapters       LoRA adapters: added to a model, merged, disabled
activations    activation checkpointing
optimisers     AdamW, fp32 Muon, schedules
loss_scaling   gradients through a backward pass in float16
checkpoint     policy or adapters, critic and optimiser state as safetensors in a Hugging Face folder
tensor_file    a safetensors file as a stream
"""
