"""Verification: consistency checks of stored datasets, and comparison with what a stage computes now.

verifier       `verify`: stages of a run, one by one, recomputed and compared
recomputation  the work of a stage again, or why it is not done again
comparison     a stored artifact against the recomputed one
stored_checks  stored artifacts against each other and the environment: a plan, and a function for each check
inputs         artifacts that stages and checks read again: checked to be as written, or derived
chosen         a recorded stage with the work expected in its place; which iterations are verified
verdict        outcome of a check: same, different, not shown, damaged
differences    first difference between two datasets or two folders
actions        stored actions executed again in the environment
texts          token ids against recorded texts: responses decoded, prompts rebuilt
tokens         concatenated token ids of the turns against the learner's segments
advantages     stored advantages against those that the stored rewards give
footers        statistics in Parquet footers against the values
numbers        metrics and headlines against the rows that they follow from
scratch        temporary store for the inputs and outputs of a stage, so that the verified store is never written
origin         what may explain a difference: another machine, thread count, library version or release, or other work
unreplayable   why an environment cannot be replayed

A whole run is verified by `tasks/loop/verify.py`, its record by `tasks/loop/record_walk.py`: nothing here depends on
which stages there are.
"""
