"""Prefect flows, the deployments that serve them, and the command line.

starpo      the training loop: rollout, reward, variance_filter, update, evaluate
warm_start  the first checkpoint of a run, as a flow of its own
audit       named audits of the runs that are going on, hourly, as Prefect artifacts
auditing    what the commands sql, audit and lineage do; answers and lineage print what they say
ablation    a grid of settings, a sub-flow `starpo` for every cell and seed; study resolves it, ablate is its command
plan        what a run would do, by keys alone
record      what a run leaves behind: its record, its state, wandb metrics, Prefect artifacts
presets/    TOML files with complete settings
server      a local Prefect server and the process that serves the deployments
serve       the deployments
follow      live progress of a flow run in a terminal
cli         the `ragen` command; imports what a command needs inside that command
"""
