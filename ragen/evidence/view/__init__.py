"""`starpo view`: the runs of a store as pages that grow while one looks.

app        `application`: the addresses, and what each answers
reading    `StoreReader`: facts, curves and trajectories of runs, kept as long as what they were made from is unchanged
listing    `RunList`: the facts of all runs, and which have changed since a page asked
query      `Query`: what a search asks for, and the commands that find the same
searching  `search`: text, facets and a condition in SQL, over all stored rollouts
conditions  conditions in SQL, evaluated in a process whose time and memory are bounded
origins    what an artifact was made from and what uses it, in all runs
states     `PanelStates`: the same initial state of a panel at other checkpoints, and in other runs
comparing  `compared`: chosen runs beside each other, their success and their settings
last_evaluations  difference of two runs in their last evaluations, and what it comes to in words
overlay    `overlay`: curves of several runs on the same axes
runs_page, compare_page  the list of runs, and chosen ones beside each other
guard      who is answered: this page, on this machine, or whoever has the token

Templates, scripts and drawings are the report's (`evidence.report`), which is the frozen form of a run's page.
"""
