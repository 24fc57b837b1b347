"""Audit of group baselines that include incomplete trajectories."""

import pyarrow as pa

from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, Severity
from starpo.ragen.evidence.audit.views import IS_ERROR
from starpo.schemas.datasets import UNKNOWN_FINISH

_GROUPS = f"""
with played as (
    select
        run,
        iteration,
        trajectory_id,
        bool_or({IS_ERROR}) as has_failed,
        bool_or({IS_ERROR} or finish_reason = 'none') as is_incomplete,
        bool_or(finish_reason = '{UNKNOWN_FINISH}') as is_untold,
        list_sort(list(distinct status) filter ({IS_ERROR} or finish_reason = 'none')) as statuses
    from turns
    group by run, iteration, trajectory_id
),
paid as (
    select run, iteration, group_id, trajectory_id, trajectory_return, is_valid
    from rewards
    where turn = 0 and not is_reused
),
members as (
    select *, is_valid and is_incomplete as is_flaw
    from paid join played using (run, iteration, trajectory_id)
),
groups as (
    select
        run,
        iteration,
        group_id,
        count(*) as trajectories,
        count(*) filter (is_incomplete) as incomplete,
        count(*) filter (is_untold) as untold,
        count(*) filter (is_valid) as valid,
        count(*) filter (is_flaw) as counted,
        count(*) filter (is_flaw and has_failed) as failed,
        list_sort(list_distinct(flatten(list(statuses) filter (is_flaw)))) as statuses,
        min(trajectory_id) filter (is_flaw) as example,
        avg(trajectory_return) filter (is_valid) as mean,
        stddev_pop(trajectory_return) filter (is_valid) as std,
        avg(trajectory_return) filter (is_valid and not is_incomplete) as mean_without,
        stddev_pop(trajectory_return) filter (is_valid and not is_incomplete) as std_without
    from members
    group by run, iteration, group_id
)
"""
_TABLE = f"""
{_GROUPS}
select
    run,
    iteration,
    count(*) as groups,
    sum(trajectories)::bigint as trajectories,
    sum(incomplete)::bigint as incomplete,
    sum(untold)::bigint as untold,
    sum(counted)::bigint as counted
from groups
group by run, iteration
order by run, iteration
"""
_CASES = f"""
{_GROUPS}
select
    groups.run,
    groups.iteration,
    groups.group_id,
    groups.valid,
    groups.counted as incomplete,
    array_to_string(groups.statuses, ', ') as statuses,
    round(mean, 4) as mean,
    round(std, 4) as std,
    round(mean_without, 4) as mean_without,
    round(std_without, 4) as std_without,
    round(mean_without - mean, 4) as mean_moves,
    round(std_without - std, 4) as std_moves,
    example,
    case when selection.num_valid > groups.valid
         then 'the filter counted ' || selection.num_valid || ' trajectories, the rewards ' || groups.valid
         when groups.failed > 0 then 'it ended in an error, but counts' end as fault
from groups left join selection using (run, iteration, group_id)
where groups.counted > 0 or selection.num_valid > groups.valid
order by fault is null, abs(mean_without - mean) desc nulls first, run, iteration, group_id
"""


def incomplete_in_baselines(database: Database) -> Finding:
    """Find groups whose return mean and std include incomplete trajectories; a fault if an error ended one of them."""
    table, cases = database.query(_TABLE), database.query(_CASES)
    faults = sum(fault is not None for fault in cases["fault"].to_pylist())
    severity: Severity = "fault" if faults else "warning" if cases.num_rows else "note"
    return Finding(
        title="Incomplete trajectories in baselines",
        severity=severity,
        summary=_summary(table, cases, faults),
        meaning=(
            "A group's baseline is the mean of its valid returns, and their std scales its advantages. A trajectory "
            "is incomplete if it has an error, a timeout, or a turn without a response because the context was full: "
            "its return covers what was played until then, as if the policy had earned it. mean_moves and std_moves: "
            "how far mean and std move without it; empty if all were incomplete. Errors and timeouts must never "
            "count, so that is a fault. A full context counts as played: raise rollout.max_context_tokens, or use a "
            "window (agent.context). untold: imported trajectories whose source does not say why responses ended."
        ),
        table=cases if cases.num_rows else table,
        is_over_time=not cases.num_rows,
    )


def _summary(table: pa.Table, cases: pa.Table, faults: int) -> str:
    num_groups = sum(table["groups"].to_pylist())
    if not num_groups:
        return "No rewards are stored, so there are no baselines to check."
    num_untold = sum(table["untold"].to_pylist())
    untold = f" For {num_untold} imported trajectories, the source does not say why they ended." if num_untold else ""
    if not cases.num_rows:
        left_out = sum(table["incomplete"].to_pylist())
        return (
            f"All {num_groups} groups count only whole trajectories; {left_out} incomplete ones are left out.{untold}"
        )
    moves = [abs(moved) for moved in cases["mean_moves"].to_pylist() if moved is not None]
    by = f"; without them their mean return moves by up to {max(moves):.4g}" if moves else ""
    wrong = f", of {faults} against the rule" if faults else ""
    counted = f"{sum(cases['incomplete'].to_pylist())} in all{wrong}"
    return f"{cases.num_rows} of {num_groups} groups count incomplete trajectories ({counted}){by}.{untold}"
