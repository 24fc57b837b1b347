"""Audit of turns that record a failure not caused by the agent."""

from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, Severity

_ERRORS = """
select
    run,
    iteration,
    status,
    count(*) as turns,
    count(distinct trajectory_id) as trajectories,
    info->>'$.error' as error,
    min(info->>'$.message') as message,
    min(info->>'$.where') as place,
    min(trajectory_id) as example
from (from turns select * replace (case when json_valid(info) then info end as info))
where status in ('env_error', 'timeout') and not is_reused
group by run, iteration, status, error
order by run, iteration, status, error
"""
_FAULTS = """
select samples.run, samples.iteration, samples.trajectory_id, any_value(turns.status) as status,
       'trained on, although an error ended it' as fault
from samples join turns using (run, iteration, trajectory_id)
where turns.status in ('env_error', 'timeout')
group by samples.run, samples.iteration, samples.trajectory_id
order by all
"""


def error_rows(database: Database) -> Finding:
    """Count turns ended by an environment failure or the deadline; a fault if such a trajectory was trained on."""
    errors, faults = database.query(_ERRORS), database.query(_FAULTS)
    num_turns = sum(errors["turns"].to_pylist())
    severity: Severity = "fault" if faults.num_rows else "warning" if num_turns else "note"
    trained = f"; {faults.num_rows} of the trajectories were trained on" if faults.num_rows else ""
    return Finding(
        title="Error rows",
        severity=severity,
        summary=f"{num_turns} turns ended in an error{trained}." if num_turns else "No turn ended in an error.",
        meaning=(
            "env_error: the environment raised; message and place are from its traceback. timeout: the rollout's "
            "deadline passed. Such trajectories are in no statistic and are not trained on, so many of them make "
            "groups smaller than configured."
        ),
        table=faults if faults.num_rows else errors,
        is_over_time=False,
    )
