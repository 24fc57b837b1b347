"""What stored runs say: reads artifacts and changes none. Begin with `report.data`.

report       the page of a run, comparisons, wandb
audit        SQL and named questions over stored turns; lineage
diagnostics  metrics from stored tables, and the collapse verdict
sizing       what a run will need, before it is started
imports      files of dataset `turns`, taken in
unreplayable what of a run cannot be played again
exchange     trajectories in the formats of others, in and out
"""
