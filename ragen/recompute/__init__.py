"""Stages recomputed from stored artifacts, all on `ragen.work.Work`. Start reading at `verify.verifier`.

verify  whether a stage reproduces what is stored
replay  reward, filter and update of stored rollouts with other settings
derive  rebuilds a dropped checkpoint by the updates that made it, each verified by its digest
forks   which runs of a store branch off from which others
"""
