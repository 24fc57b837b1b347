"""Immutable folders with a manifest.

keys        canonical JSON; the key of a stage's work
artifacts   stage, seal, verify, fetch; committing: the one step that makes a folder an artifact;
            looking: is one still what was written?
datasets    Parquet files: streamed, validated, digested
folders     plain files, such as checkpoints; files: on this machine, hashed and compared
manifests   read; facts, provenance: what they say of how something was made
quarantine  datasets that break their contract, kept whole with the reasons
"""
