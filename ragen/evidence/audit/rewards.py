"""Audit of reward arithmetic: every sum is recomputed from its parts."""

from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding

_TURN = "run, iteration, trajectory_id, turn"
_FAULTS = f"""
with paid as (
    select
        {_TURN}, total, trajectory_return, is_valid, component_names, component_values,
        list_sum(component_values) as parts,
        sum(total) over (partition by run, iteration, trajectory_id) as summed,
        is_reused as is_paid_before
    from rewards
),
played as (
    select
        {_TURN}, coalesce(list_sum(action_rewards), 0.0) as earned,
        bool_or(status in ('env_error', 'timeout') or origin = 'greedy')
            over (partition by run, iteration, trajectory_id) as is_left_out
    from turns
),
pairs as (
    select * from paid join played using ({_TURN}) where not is_paid_before
),
compared as (
    select
        {_TURN}, 'total is not the sum of component_values' as fault, total as stored, parts as computed
    from paid
    where not is_paid_before
    union all
    select {_TURN}, 'trajectory_return is not the sum of total', trajectory_return, summed
    from paid
    where not is_paid_before
    union all
    select
        {_TURN}, 'the component environment is not the sum of action_rewards',
        component_values[list_position(component_names, 'environment')], earned
    from pairs
    where list_contains(component_names, 'environment')
    union all
    select {_TURN}, 'is_valid (1 or 0) contradicts the statuses and origins of the turns',
        is_valid::double, (not is_left_out)::double
    from pairs
    union all
    select {_TURN}, 'the turn has no reward', null, 0.0
    from played anti join paid using ({_TURN})
    where (run, iteration) in (select (run, iteration) from paid)
    union all
    select {_TURN}, 'the reward has no turn', 0.0, null
    from paid anti join played using ({_TURN})
)
select {_TURN}, fault, stored, computed
from compared
where stored is null or computed is null or not isfinite(stored) or not isfinite(computed)
   or abs(stored - computed) > 1e-6 * greatest(1.0, abs(stored), abs(computed))
order by run, iteration, trajectory_id, turn, fault
"""
"""Reused turns may be rewarded anew (a schedule of `reward`), so rewards are compared with all turns of their
iteration; reused rewards were checked before."""
_CHECKED = """
select
    run,
    count(*) as turns,
    count(distinct (iteration, trajectory_id)) as trajectories,
    round(max(abs(total - list_sum(component_values))), 9) as largest_difference
from rewards
where not is_reused
group by run
order by run
"""


def rewards_add_up(database: Database) -> Finding:
    """Recompute component sums, trajectory returns and environment rewards from the stored parts, and compare."""
    faults, checked = database.query(_FAULTS), database.query(_CHECKED)
    num_turns = sum(checked["turns"].to_pylist())
    return Finding(
        title="Rewards that do not add up",
        severity="fault" if faults.num_rows else "note",
        summary=(
            f"{faults.num_rows} sums over {num_turns} turns differ from what is stored."
            if faults.num_rows
            else f"All sums over {num_turns} turns are as stored."
        ),
        meaning=(
            "Recomputed: total from component_values, trajectory_return from the totals, the component environment "
            "from the turns' action_rewards, is_valid from the turns' statuses and origins; each to one part in a "
            "million. A fault means that training used other rewards than the rollout earned: run the reward "
            "stage again, or `starpo verify`."
        ),
        table=faults if faults.num_rows else checked,
        is_over_time=False,
    )
