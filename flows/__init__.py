"""Prefect flows, the deployments that serve them, and the command line.

starpo      the flow of training; the loops are in `tasks.loop`
replay      reward, filter and update over stored rollouts, with other settings
ablation    a grid of settings, one sub-flow `starpo` per cell and seed
eval_sweep  checkpoints on panels, one task per cell
study       shared code of these two; ablation_plan and sweep_plan: their plans
audit       named audits of running runs, hourly

scripting   `starpo.train` and `starpo.play` for scripts and notebooks; opened_run: `starpo.Run`
training_run   a training run from begin to end, with the stages carried out by an execution
stage_task  the one Prefect task, which carries out any stage: retries I/O errors only
prefect_execution  the stages of a run as Prefect tasks; `ragen.runs.execution`: in this process
record      recording of a run: its record, its state; tracking: its metrics to wandb
evaluation  evaluation of a run's checkpoint; checkpoint_export: a checkpoint as a folder
objectives  comparison of objectives on a stored update
*_summary   results as text
logs        escaping of stored text for logs
presets/    TOML files with complete settings; grids/ of ablations, sweeps/

serve       serves the deployments; server: a local Prefect server and the process that serves them
abandoned   flow runs whose process died, ended in Prefect
cli/        the `ragen` command: one file per command
console/    code shared by several commands; terminal, stores, flow_run, outcome: shared by them and the flows
"""

from starpo.flows.logs import install

install()  # before a flow, or a command, logs anything
