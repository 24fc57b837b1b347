"""Updates on ranks, over several GPUs or cores, with models sharded by DeepSpeed's ZeRO.

learner           start here: implements the learner protocol by sending requests to the ranks
ranks             the processes of the ranks, from start to end
rank              one of them
model             a trained model whose weights, gradients or optimiser state are sharded
trajectory_table  trajectories as they are sent to ranks
"""
