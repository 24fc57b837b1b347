"""Content-addressed artifacts and named runs, local or on object storage; independent of what is stored.

store      `Store`: the facade. Start here
attempts   names of stages and inputs that occur several times in an iteration
measurements  what was measured of stored turns afterwards, found by inputs
named_rollouts  rollouts named by run and iterations -> keys
remote     access to the store's location: the only code that touches a file system or S3
artifacts  immutable folders with a manifest, committed once, verified on reading
records    named runs, sweeps and studies; which process works on a run
keeping    reachability, garbage collection, copies, integrity checks, checkpoints that can be derived again
"""

from starpo.ragen.store.artifacts.facts import Facts
from starpo.ragen.store.store import Store

__all__ = ["Facts", "Store"]
