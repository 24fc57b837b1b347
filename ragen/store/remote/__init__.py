"""Access to a store's location.

location        the only code that touches a file system: read, replace, create once
object_storage  its remote side: S3; every call is bounded in time and retried if that may help
failures        meaning of errors of a disk or a server, and advice
ranges          a remote file that is read in ranges
local_cache     copies of remote artifacts on this machine
redaction       addresses and messages without secrets
"""
