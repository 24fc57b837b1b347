"""Content-addressed artifacts and named runs, in a local folder or on object storage. Knows nothing of what is stored.

keys          canonical JSON; the key of a stage's work
location      the one place that touches a file system: read, replace, create once; retries, errors, scrubbed addresses
artifacts     immutable folders with a manifest: stage, commit once, verify, fetch
datasets      Parquet files of a dataset: streamed, validated, digested
quarantine    datasets that break their contract, kept whole with the reasons
runs          names for people: a run's configuration, its stages' keys, its state
provenance    versions, hardware, threads, time: what a manifest says about where it was made
store         `Store`: all of it behind one door
"""

from ragen.store.store import Store

__all__ = ["Store"]
