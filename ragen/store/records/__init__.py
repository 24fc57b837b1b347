"""Names for people.

runs     a run's configuration, its stages' keys, its state
seals    each record names the digest of the one before it
leases   one process works on a run at a time, and a killed one is succeeded
sweeps   cells that a sweep has measured; studies: results over runs
"""
