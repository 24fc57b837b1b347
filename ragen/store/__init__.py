"""Content-addressed artifacts and named runs, in a local folder or on object storage. Knows nothing of what is stored.

keys          canonical JSON; the key of a stage's work
location      the one place that touches a file system: read, replace, create once
object_storage  its remote side: S3, every call bounded in time and repeated where that may help
failures      what an error of a disk or of a server means, and what to do about it
redaction     addresses and messages without secrets
local_cache   copies of remote artifacts on this machine
artifacts     immutable folders with a manifest: stage, commit once, verify, fetch
files         their files on this machine: hashed, compared, told apart once touched
names         what may be a folder's name
ranges        a remote file of which readers fetch the ranges they want
datasets      Parquet files of a dataset: streamed, validated, digested
quarantine    datasets that break their contract, kept whole with the reasons
runs          names for people: a run's configuration, its stages' keys, its state
seals         each of a run's records names the digest of the one before it
leases        one process works on a run at a time, and a killed one is succeeded
inventory     what lies in a store, by listing it
sweeps        which cells a sweep has measured
reachability  which artifacts a run needs: those it names and all they were made from
retention     what no run needs goes, and what killed writers left
usage         numbers and bytes by kind and by run
integrity     everything hashed again where it lies
copying       a run with everything it needs, to another store
provenance    versions, hardware, threads, time: what a manifest says about where it was made
store         `Store`: all of it behind one door
"""

from ragen.store.store import Store

__all__ = ["Store"]
