"""Content-addressed artifacts and named runs, local or on object storage; knows nothing of what is stored.

store      `Store`: all of it behind one door. Begin here
attempts   how stages and inputs are named that an iteration has several of
remote     where a store is: the one place that touches a file system or S3
artifacts  immutable folders with a manifest, committed once, verified when read
records    names for people: runs, sweeps, studies; who is at work on one
keeping    what is reachable, what may go, copies, checks, checkpoints that can be made again
"""

from starpo.ragen.store.store import Store

__all__ = ["Store"]
