"""Generation by a server with an OpenAI-compatible API, for evaluation.

engine   start here: sessions over one server
session  one shard's requests in flight
client   the HTTP client
errors   what the server's errors mean
"""
