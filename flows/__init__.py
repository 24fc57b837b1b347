"""What starts runs and shows them: the command line, the Python interface, and Prefect, which this folder alone knows.

cli/        the `starpo` command: one file per command
api/        the Python interface: `import starpo`
console/    output for people, shared by both; a run's start and its progress

starpo      the flow of training; the loops are in `tasks.loop`
replay      reward, filter and update over stored rollouts, with other settings
ablation    a grid of settings, one sub-flow `starpo` per cell and seed; ablation_plan: its runs
eval_sweep  checkpoints on panels, one task per cell; sweep_plan: its cells
study       shared code of these two
audit       named audits of running runs, hourly
stage_task  the one Prefect task, which carries out any stage: retries I/O errors only
prefect_execution  the stages of a run as Prefect tasks; `ragen.runs.execution`: in this process
runners     where Prefect executes tasks: threads, Ray

deployments  what is served; serve: serves it; server: a local Prefect server and the process that serves
view_server  the live pages of runs, beside it; background: a process that is started and stopped
flow_run    a flow run of the server; outcome: how it ended
abandoned   flow runs whose process died, ended in Prefect
logs        escaping of stored text for logs
presets/    TOML files with complete settings; grids/ of ablations, methods/
"""

from starpo.flows.logs import install

install()  # before a flow, or a command, logs anything
