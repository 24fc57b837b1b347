"""Prefect flows, the deployments that serve them, and the command line.

starpo      the training loop: rollout, reward, variance_filter, update, evaluate
warm_start  the first checkpoint of a run, as a flow of its own
replay      reward, filter and update again over stored rollouts, with other settings
ablation    a grid of settings, a sub-flow `starpo` for every cell and seed
eval_sweep  checkpoints on panels, a task for every cell
study       what these two have in common; ablation_plan and sweep_plan: what is to be done
audit       named audits of the runs that are going on, hourly, as Prefect artifacts

record      what a run leaves behind: its record, its state, wandb metrics; announcements: Prefect artifacts
plan        what a run would do, by keys alone
walk        a run's record beside what its settings ask for
objectives  objectives beside each other on stored rollouts; objective_forks: and what forks gained
verify      a run's stages computed again and compared
*_summary   results as rows and markdown
markdown    text of a store on Prefect's pages; logs: in logs
presets/    TOML files with complete settings; grids/ of ablations, sweeps/

serve       the deployments; server: a local Prefect server and the process that serves them
cli/        the `ragen` command: a file a command
console/    what several commands do and print
"""

from starpo.flows.logs import install

install()  # before a flow, or a command, logs anything
