"""Suites: tasks of other packages as environments, with one adapter per package, imported when a task is made.

suite           base of all adapters
bridge          synchronous calls into asynchronous packages
gymnasium       registered environments with Discrete or Text actions
reasoning_gym   questions with verifiable answers; demonstrations: a player that answers them poorly
textarena       single-player games
verifiers       single-response tasks
openenv         a server that implements OpenEnv's protocol
alfworld        games of TextWorld, including ALFWorld; games: the games in a folder; world: a running game
"""
