"""Records of named runs, sweeps and studies.

runs     all runs of a store; run: configuration and state of one
seals    each record contains the digest of the previous one
leases   one process works on a run at a time; a killed one can be succeeded
answers  questions to external judges and their answers
studies  results over runs, and the cells that a sweep has measured
"""
