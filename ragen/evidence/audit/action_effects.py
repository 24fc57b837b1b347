"""Audit of the effect of actions on the environment."""

from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, first_to_last

_WITH_STATE_BEFORE = """
    select
        *,
        lag(state_digest, 1, initial_state_digest) over (
            partition by run, iteration, trajectory_id order by turn
        ) as digest_before,
        len(executed_actions) as executed,
        len(list_filter(action_effective, lambda is_effective: is_effective)) as effective
    from turns
    where not is_reused
"""


def actions_without_effect(database: Database) -> Finding:
    """Measure the share of executed actions without effect over time; a fault if it contradicts the state digests."""
    faults = database.query(
        f"""
        select
            run, iteration, trajectory_id, turn, executed_actions, action_effective, digest_before, state_digest,
            case when effective = 0 then 'no action is recorded as effective, yet the state changed'
                 else 'the only action is recorded as effective, yet the state did not change' end as fault
        from ({_WITH_STATE_BEFORE})
        where status not in ('env_error', 'timeout')
          and ((effective = 0 and state_digest <> digest_before)
               or (executed = 1 and effective = 1 and state_digest = digest_before))
        order by run, iteration, trajectory_id, turn
        """
    )
    table = database.query(
        """
        select
            run,
            iteration,
            sum(len(executed_actions))::bigint as actions,
            round(sum(len(list_filter(action_effective, lambda is_effective: not is_effective)))
                  / nullif(sum(len(executed_actions)), 0), 4) as without_effect,
            round(avg((len(action_effective) > 0 and not list_bool_or(action_effective))::integer), 4) as idle_turns,
            sum(forfeited_actions)::bigint as forfeited
        from turns
        where finish_reason <> 'none' and not is_reused and origin <> 'greedy'
        group by run, iteration
        order by run, iteration
        """
    )
    return Finding(
        title="Actions without effect",
        severity="fault" if faults.num_rows else "note",
        summary=(
            f"{first_to_last(table, 'without_effect', 'share of executed actions that changed nothing')}"
            + (f"; {faults.num_rows} turns contradict the digests of their states." if faults.num_rows else ".")
        ),
        meaning=(
            "An action has no effect when it leaves the state unchanged: a walk into a wall, a push that is "
            "blocked. idle_turns: share of turns whose actions all had none. forfeited: actions given up by malformed "
            "responses. A fault means that action_effective and state_digest were not recorded from the same game: "
            "look at the environment's step and state_digest, and at `starpo verify`."
        ),
        table=faults if faults.num_rows else table,
        is_over_time=not faults.num_rows,
    )
