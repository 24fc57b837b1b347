"""Names for people.

runs     all runs of a store; run: how one was begun, how it stands
seals    each record names the digest of the one before it
leases   one process works on a run at a time, and a killed one is succeeded
answers  what judges outside were asked and said
studies  results over runs, and the cells that a sweep has measured
"""
