"""Where a store is.

location        the one place that touches a file system: read, replace, create once
object_storage  its remote side: S3, every call bounded in time and repeated where that may help
failures        what an error of a disk or of a server means, and what to do about it
ranges          a remote file of which readers fetch the ranges they want
local_cache     copies of remote artifacts on this machine
redaction       addresses and messages without secrets
"""
