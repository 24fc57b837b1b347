"""Audit of staleness: the age of the trajectories trained on, compared with the limit set by the configuration."""

import pyarrow as pa

from starpo.ragen.core.counts import counted
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding

_TRAINED = """
with played as (
    select run, iteration, trajectory_id, max(staleness) as staleness
    from turns
    group by run, iteration, trajectory_id
),
limits as (
    select
        run,
        coalesce(try_cast(config->>'$.rollout.staleness' as bigint), 0)
            + coalesce(try_cast(config->>'$.online_k' as bigint), 1) - 1 as allowed
    from runs
    where json_exists(config, '$.rollout')
)
select
    samples.run,
    samples.iteration,
    count(*) as trajectories,
    count(*) filter (staleness is null) as unknown,
    min(staleness)::bigint as least,
    max(staleness)::bigint as most,
    any_value(allowed) as allowed,
    count(*) filter (staleness > allowed) as beyond
from samples
    join played using (run, iteration, trajectory_id)
    left join limits on limits.run = samples.run
group by samples.run, samples.iteration
order by samples.run, samples.iteration
"""


def stale_use(database: Database) -> Finding:
    """Measure how many updates old the trajectories were that each update used; more than allowed is a fault."""
    table = database.query(_TRAINED)
    rows = table.to_pylist()
    faults = [number for number, row in enumerate(rows) if row["beyond"]]
    return Finding(
        title="Staleness",
        severity="fault" if faults else "note",
        summary=_summary(rows, len(faults)),
        meaning=(
            "least, most: updates between the policy that played the trajectories and the one that the iteration's "
            "update began with. allowed: rollout.staleness, and online_k - 1 where one rollout serves online_k "
            "updates. unknown: trajectories that another run's policy played (a replay), or whose policy is not "
            "recorded (an import). More than is allowed means that the loop used an older rollout than its "
            "settings permit: `starpo lineage RUN:ITERATION:update` shows which, and update/old_behaviour_gap_max how "
            "far off it was."
        ),
        table=table.take(pa.array(faults, pa.int64())) if faults else table,
        is_over_time=not faults,
    )


def _summary(rows: list[dict[str, int | None]], num_faults: int) -> str:
    if not rows:
        return "No update is stored, so nothing was trained on."
    known = [row for row in rows if row["most"] is not None]
    parts = []
    if known:
        oldest = max(row["most"] or 0 for row in known)
        limits = sorted({row["allowed"] for row in known if row["allowed"] is not None})
        allowed = f"at most {' or '.join(map(str, limits))} allowed" if limits else "the limit is unknown"
        parts.append(f"up to {counted(oldest, 'update')} old, in {counted(len(known), 'iteration')}; {allowed}")
    if num_faults:
        num_beyond = sum(row["beyond"] or 0 for row in rows)
        parts.append(f"{num_beyond} trajectories of {counted(num_faults, 'iteration')} are older than that")
    if num_unknown := sum(bool(row["unknown"]) for row in rows):
        parts.append(f"for {counted(num_unknown, 'iteration')} it is unknown, as no policy of this run played them")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
