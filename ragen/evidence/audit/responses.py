"""Audits of the model's responses: duplicates over time, and malformed responses."""

from starpo.ragen.core.counts import counted
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, first_to_last
from starpo.ragen.evidence.audit.views import WITHOUT_FORMAT

ECHO_SHARE = 0.5
"""Share of an iteration from which a single repeated reasoning counts as independent of the observation."""
ECHO_OBSERVATIONS = 10
"""Minimum number of different observations that this reasoning must occur with."""
INVALID_SHARE = 0.1
"""Share of malformed responses in the last iteration at which the audit warns."""


def duplicate_responses(database: Database) -> Finding:
    """Measure how often responses and reasoning repeat within an iteration, over time."""
    table = database.query(
        """
        with said as (
            select run, iteration, response, think, observation
            from turns
            where finish_reason <> 'none' and not is_reused and origin <> 'greedy'
        ),
        responses as (
            select run, iteration, response, count(*) as times from said group by all
        ),
        reasonings as (
            select run, iteration, think, count(*) as times, count(distinct observation) as observations
            from said where think is not null group by all
        ),
        by_response as (
            select
                run,
                iteration,
                sum(times)::bigint as responses,
                round(count(*) / sum(times), 4) as distinct_responses,
                round(max(times) / sum(times), 4) as top_response_share,
                max({'times': times, 'text': response}).text as top_response
            from responses group by all
        ),
        by_reasoning as (
            select
                run,
                iteration,
                round(count(*) / sum(times), 4) as distinct_reasoning,
                round(max(times) / sum(times), 4) as top_reasoning_share,
                max({'times': times, 'observations': observations}).observations as top_reasoning_observations,
                max({'times': times, 'observations': observations, 'text': think}).text as top_reasoning
            from reasonings group by all
        )
        select * from by_response left join by_reasoning using (run, iteration) order by run, iteration
        """
    )
    echoes = [
        row
        for row in table.select(["top_reasoning_share", "top_reasoning_observations"]).to_pylist()
        if (row["top_reasoning_share"] or 0) >= ECHO_SHARE and row["top_reasoning_observations"] >= ECHO_OBSERVATIONS
    ]
    echo = f"; in {counted(len(echoes), 'iteration')} one reasoning makes up half or more" if echoes else ""
    return Finding(
        title="Duplicate responses and reasoning",
        severity="warning" if echoes else "note",
        summary=(
            f"{first_to_last(table, 'distinct_responses', 'share of distinct responses')}, "
            f"{first_to_last(table, 'distinct_reasoning', 'share of distinct reasoning')}{echo}."
        ),
        meaning=(
            "Shares are of an iteration's responses; reasoning is the text inside the think tags. Terse policies "
            "repeat themselves because boards do. A fall over time, or one reasoning for many different observations "
            "(top_reasoning_observations), is the echo trap: look at the top ones, and at entropy and reward std."
        ),
        table=table,
        is_over_time=True,
    )


def invalid_formats(database: Database) -> Finding:
    """Measure the share of malformed responses over time, and what is wrong with them."""
    table = database.query(
        f"""
        select
            run,
            iteration,
            count(*) as responses,
            round(avg((not format_ok)::integer), 4) as invalid,
            round(avg((not format_ok and finish_reason = 'length')::integer), 4) as cut_off,
            round(avg((not format_ok and finish_reason <> 'length' and answer is null)::integer), 4) as bad_tags,
            round(avg((not format_ok and finish_reason <> 'length' and answer is not null)::integer), 4) as bad_actions,
            min(trajectory_id || ', turn ' || turn) filter (not format_ok) as example,
            min_by(response, trajectory_id || ', turn ' || turn) filter (not format_ok) as example_response
        from turns
        where finish_reason <> 'none' and not is_reused and origin <> 'greedy' and not {WITHOUT_FORMAT}
        group by run, iteration
        order by run, iteration
        """
    )
    last = table["invalid"][-1].as_py() if table.num_rows else 0.0
    return Finding(
        title="Invalid formats",
        severity="warning" if last >= INVALID_SHARE else "note",
        summary=f"{first_to_last(table, 'invalid', 'share of malformed responses')}.",
        meaning=(
            "cut_off: the response reached its token limit. bad_tags: think and answer tags are not well formed. "
            "bad_actions: the answer names none, or one that the environment does not know. A rising share is often "
            "the first sign of a collapse; the reward's format_penalty and its component 'forfeit' work against it. "
            "Imported responses count where their source says which of them are well formed."
        ),
        table=table,
        is_over_time=True,
    )
