"""Audit of the filter: how many groups were kept or dropped and why, and whether the update respected this."""

import pyarrow as pa

from starpo.ragen.core.counts import counted
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, first_to_last
from starpo.ragen.learning.filter.select import SURPLUS

_FATES = f"""
select
    run,
    iteration,
    count(*) as groups,
    count(*) filter (kept) as kept,
    count(*) filter (not kept and reason like '%zero variance%') as zero_variance,
    count(*) filter (not kept and num_valid = 0) as no_valid_trajectory,
    count(*) filter (not kept and starts_with(reason, '{SURPLUS}')) as surplus,
    count(*) filter (not kept and num_valid > 0 and reason not like '%zero variance%'
                     and not starts_with(reason, '{SURPLUS}')) as ranked_too_low,
    round(min(score) filter (kept), 4) as lowest_kept_score,
    round(max(score) filter (not kept), 4) as highest_dropped_score,
    min(reason) filter (not kept) as example
from selection
group by run, iteration
order by run, iteration
"""
_FAULTS = """
select run, iteration, group_id, count(*) as trajectories, any_value(selection.reason) as reason,
       'trained on, although the filter dropped its group' as fault
from samples join selection using (run, iteration, group_id)
where not selection.kept
group by run, iteration, group_id
union all
select run, iteration, group_id, count(*), null, 'trained on, but the filter never saw its group'
from samples anti join selection using (run, iteration, group_id)
where (run, iteration) in (select (run, iteration) from selection)
group by run, iteration, group_id
union all
select run, iteration, group_id, num_trajectories, reason, 'the reason contradicts the column kept'
from selection
where kept <> starts_with(reason, 'kept')
order by all
"""


def groups_by_reason(database: Database) -> Finding:
    """Count groups by the filter's reason to keep or drop them; a fault if the update trained on dropped ones."""
    table, faults = database.query(_FATES), database.query(_FAULTS)
    kept, groups = table["kept"].to_pylist(), table["groups"].to_pylist()
    shares = pa.table({"kept_share": [part / whole for part, whole in zip(kept, groups, strict=True)]})
    num_empty = kept.count(0)
    return Finding(
        title="Groups by filter reason",
        severity="fault" if faults.num_rows else "warning" if num_empty else "note",
        summary=(
            f"{first_to_last(shares, 'kept_share', 'share of groups kept')}"
            + (f"; nothing was kept in {counted(num_empty, 'iteration')}" if num_empty else "")
            + (f"; {faults.num_rows} groups were not treated as the filter decided." if faults.num_rows else ".")
        ),
        meaning=(
            "zero_variance: all returns of the group are equal, so it says nothing about what is better. "
            "no_valid_trajectory: every member met an error. surplus: beyond filter.num_wanted. ranked_too_low: "
            "outscored by other groups. More and more groups without variance mean that tasks have become too easy or "
            "hopeless. `starpo show RUN --iteration N` prints every group's own reason."
        ),
        table=faults if faults.num_rows else table,
        is_over_time=not faults.num_rows,
    )
