"""Immutable folders with a manifest.

keys        canonical JSON; the cache key of a stage's work
artifacts   stage, seal, commit, drop; looking: whether an artifact is still what was written
reading     existence, manifests and files, verified
datasets    Parquet files: streamed, validated, digested
folders     plain files, such as checkpoints; files: on this machine, hashed and compared
manifests   parsing; facts, provenance: how an artifact was made
quarantine  datasets that break their contract, kept completely with the reasons
"""
