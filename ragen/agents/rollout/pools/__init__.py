"""Players of shards: in this process, in worker processes, or in Ray actors.

local_player  plays shards in this process
pool          players elsewhere: what is lost or hung is replaced, and its shard played once more
worker_pool   worker processes; worker is one of them
ray_pool      Ray actors; ray_cluster is where they live
"""
