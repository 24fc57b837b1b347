"""`starpo view`: the runs of a store as pages that grow while one looks.

app        `application`: the addresses, and what each answers
reading    `StoreReader`: facts, curves and trajectories of runs, kept as long as what they were made from is unchanged
searching  `search`: text, outcome, return and decision, over all stored rollouts
states     `PanelStates`: the same initial state of a panel at other checkpoints, and in other runs
runs_page  the list of runs
guard      who is answered: this page, on this machine, or whoever has the token

Templates, scripts and drawings are the report's (`evidence.report`), which is the frozen form of a run's page.
"""
