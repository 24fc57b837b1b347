"""Audit of individual trajectories: the longest, and outliers by several measures."""

from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding

NUM_CASES = 3
"""Trajectories shown per measure."""

_CASES = f"""
with played as (
    select
        run, iteration, trajectory_id, group_id,
        nullif(sum(len(response_ids)), 0) as tokens,
        nullif(max(len(response_ids)), 0) as longest_response,
        -sum(list_sum(behaviour_logprobs)) / nullif(sum(len(behaviour_logprobs)), 0) as surprise,
        max(length(response) - length(regexp_replace(response, '[^ -~\\n]', '', 'g'))) as strange_characters,
        sum(len(list_filter(action_effective, lambda is_effective: not is_effective))) as idle_actions
    from turns
    where not is_reused and origin <> 'greedy'
    group by all
),
paid as (
    select run, iteration, trajectory_id, trajectory_return,
           trajectory_return - avg(trajectory_return) over (partition by run, iteration, group_id) as above_group
    from rewards
    where turn = 0 and not is_reused and is_valid
),
measured as (
    from played left join paid using (run, iteration, trajectory_id)
),
cases as (
    select 'most response tokens' as measure, tokens::double as value, * from measured
    union all select 'longest single response, tokens', longest_response, * from measured
    union all select 'least probable, nats per token', surprise, * from measured
    union all select 'characters outside of ASCII', nullif(strange_characters, 0), * from measured
    union all select 'most actions without effect', nullif(idle_actions, 0), * from measured
    union all select 'furthest above its group, return', above_group, * from measured where above_group > 1e-9
    union all select 'furthest below its group, return', -above_group, * from measured where above_group < -1e-9
)
select measure, place, round(value, 4) as value, run, iteration, trajectory_id, tokens::bigint as tokens,
       round(trajectory_return, 4) as trajectory_return
from (
    select *, row_number() over (partition by measure order by value desc, run, iteration, trajectory_id) as place
    from cases
    where value is not null
)
where place <= {NUM_CASES}
order by place, measure
"""


def longest_and_oddest(database: Database) -> Finding:
    """Find the longest trajectories, the least probable, and those furthest from their group."""
    table = database.query(_CASES)
    num_cases = len(set(zip(*(table[name].to_pylist() for name in ("run", "iteration", "trajectory_id")), strict=True)))
    return Finding(
        title="Longest and oddest trajectories",
        severity="note",
        summary=f"{num_cases} trajectories that are extreme in some measure.",
        meaning=(
            f"The {NUM_CASES} largest values of each measure over all iterations. Read them first: "
            "`ragen show RUN --iteration N --trajectory ID`."
        ),
        table=table,
        is_over_time=False,
    )
