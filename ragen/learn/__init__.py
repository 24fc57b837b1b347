"""Learning: from stored turns, rewards and a selection to a new checkpoint.

    learner        the protocol
    trajectories   stored rows -> the trajectories and segments a learner trains on
    batches        deals trajectories to mini-batches, packs segments into micro-batches
    torch_learner  one process, CPU or one GPU
    optimisers     AdamW, fp32 Muon, schedules
    checkpoint     policy, critic, optimiser and RNG state as safetensors in a Hugging Face folder
"""
