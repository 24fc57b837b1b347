"""The Python interface: what `import starpo` offers to scripts and notebooks, and commands show in a terminal.

scripting          `starpo.train`, `starpo.play`
opened_run         `starpo.open_run`, `runs`, `sql`: a run of a store as an object
evaluation         `starpo.evaluate`: whatever answers, on the same initial states
subjects           who is evaluated and on what, as one writes it
checkpoint_export  a checkpoint as a folder
diagnosis          a run's metrics examined again
objectives         comparison of objectives on a stored update
credit             the true credit of turns, and its verification
credit_comparison  estimators beside the true credit of stored turns
experiment         the settings of a new experiment as TOML
"""
