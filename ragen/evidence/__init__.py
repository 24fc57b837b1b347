"""Analysis of stored runs: reads artifacts and modifies none. Begin with `report.data`.

report       the report page of a run, success curves of several, wandb
view         the runs of a store as live pages
audit        SQL and named audits over stored turns; lineage
diagnostics  gradients, template collapse and reuse of rollouts, from stored metrics
reading      `Reader`: tolerant reading of a run, with a list of what cannot be read
run_facts    a run at a glance, for lists of runs
cost         hours of machine and tokens of a run; times: its time by stage; pace: its speed, to plan another
imports      import of files that hold dataset `turns`
unreplayable the parts of a run that cannot be replayed
exchange     import and export of trajectories in other formats
"""
