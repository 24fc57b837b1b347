"""Suites: the tasks of other packages as environments, an adapter a package, which is imported when a task is made.

suite           what all adapters have in common
bridge          asynchronous packages, waited for
gymnasium       registered environments with Discrete or Text actions
reasoning_gym   questions with answers that can be checked; demonstrations: who answers them badly
textarena       games for one player
verifiers       tasks of one response
openenv         a server that speaks OpenEnv's protocol
"""
