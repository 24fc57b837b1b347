"""Is what is stored what happened? Checks over stored datasets, and comparison with what a stage gives now.

verifier    `verify`: a run's stages, one by one, computed again and compared
chosen      a recorded stage with the work that its place asks for; which of them are looked at
verdict     what a check found: same, different, not shown, left out, damaged
differences where two datasets or two folders differ first
actions     stored actions executed again in the environment
texts       token ids against recorded texts: responses decoded, prompts built again
siblings    what search chose against what it chose among
tokens      token ids of the turns, concatenated, against what the learner was given
footers     what Parquet files say of their values against these
numbers     metrics and headlines against the rows that they follow from
scratch     a store aside that sees the inputs of a stage and takes its outputs, so that no verified store is written
origin      what could excuse a difference: another machine, thread count, library version or release; is it other work?

Re-computing stages is `flows/verify.py`'s, and comparing records with what settings ask for `flows/walk.py`'s: stages
are tasks, and nothing here knows of them.
"""
