"""Is what is stored what happened? Checks over stored datasets, and comparison with what a stage gives now.

plan        which recorded stages are verified, in the order of the work
finding     what a check found: same, different, not repeatable, damaged
differences where two datasets or two folders differ first
actions     stored actions executed again in the environment
texts       token ids against recorded texts: responses decoded, prompts built again
tokens      token ids of the turns, concatenated, against what the learner was given
scratch     a store aside that sees the inputs of a stage and takes its outputs, so that no verified store is written
origin      what could excuse a difference: another machine, thread count, library version or release

Re-computing stages is `flows/verify.py`'s: stages are tasks, and nothing here knows of them.
"""
