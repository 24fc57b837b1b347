"""Access to a store's location.

location        `Location`: what a store needs of the place that it is in
opening         an address -> its location
folder          `Folder`: on a disk
bucket          `Bucket`: on S3
committing      the atomic step that makes a folder an artifact, for both; staging: the folder before that
object_storage  operations on S3; every call is bounded in time and retried if that may help
failures        meaning of errors of a disk or a server, and advice
ranges          a remote file that is read in ranges
local_cache     copies of remote artifacts on this machine
redaction       addresses and messages without secrets
"""
