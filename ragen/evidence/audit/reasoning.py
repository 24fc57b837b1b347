"""Audit of the model's statements about the board, checked against the board it was shown."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.lookup import resolve
from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.make import environment_type
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, first_to_last

FALSE_SHARE = 0.25
"""Share of false statements in the last iteration at which the audit warns."""

_THOUGHTS = """
select
    run,
    iteration,
    -- of a mixture, what plays under the tag
    coalesce(config->>('$.environment.parts."' || env || '".environment.type'), env) as played,
    observation,
    think,
    count(*) as times,
    min(trajectory_id || ', turn ' || turn) as example
from turns
left join runs using (run)
where finish_reason <> 'none' and not is_reused and origin <> 'greedy'
group by all
order by run, iteration, example
"""
Reader = Callable[[str, str], list[Claim]]
"""(observation, reasoning) -> the verifiable statements in the reasoning."""

_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "iteration": pa.int32(),
        "about": pa.string(),
        "claims": pa.int64(),
        "false_share": pa.float64(),
        "turns_judged": pa.float64(),
        "example": pa.string(),
        "said": pa.string(),
        "truth": pa.string(),
    }
)


@dataclass
class _Tally:
    """Counts of one iteration, by subject of the claims."""

    num_turns: int = 0
    num_judged: int = 0
    claims: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[str, Claim]] = field(default_factory=dict)


@cache
def _reader(env: str) -> Reader | None:
    """Return the function that extracts claims for this environment; None if there is none, or it is not installed."""
    try:
        claims = environment_type(env).claims
        return resolve(claims) if claims else None
    except StarPOError:
        return None


def reasoning_against_board(database: Database) -> Finding:
    """Measure the share of statements about the board that the observation shown to the model refutes, over time."""
    tallies: dict[tuple[str, int], _Tally] = {}
    known: dict[tuple[str, str, str], list[Claim]] = {}
    for batch in database.stream(_THOUGHTS):
        for run, iteration, env, observation, think, times, example in zip(
            *(c.to_pylist() for c in batch.columns), strict=True
        ):
            tally = tallies.setdefault((run, iteration), _Tally())
            tally.num_turns += times
            read = _reader(env)
            if think is None or read is None:
                continue
            thought = (env, observation, think)
            claims = known.get(thought)
            if claims is None:
                claims = known[thought] = read(observation, think)
            tally.num_judged += times if claims else 0
            for claim in claims:
                tally.claims[claim.about] += times
                if not claim.is_true:
                    tally.false[claim.about] += times
                    tally.examples.setdefault(claim.about, (example, claim))
    table = pa.Table.from_pylist(
        [row for (run, iteration), tally in tallies.items() for row in _rows(run, iteration, tally)], schema=_SCHEMA
    )
    shares = pa.table({"share": [sum(t.false.values()) / sum(t.claims.values()) for t in tallies.values() if t.claims]})
    last = shares["share"][-1].as_py() if shares.num_rows else 0.0
    num_turns = sum(tally.num_turns for tally in tallies.values())
    num_judged = sum(tally.num_judged for tally in tallies.values())
    return Finding(
        title="Reasoning that contradicts the board",
        severity="warning" if last >= FALSE_SHARE else "note",
        summary=(
            f"{first_to_last(shares, 'share', 'share of false statements')}; "
            f"{num_judged} of {num_turns} responses contain statements that can be judged."
        ),
        meaning=(
            "Statements about positions (and, in Sokoban, about pushes that can be made) are compared with the "
            "recorded observation, parsed by the environment's own code; what cannot be parsed with certainty is not "
            "judged (turns_judged: share of the iteration's responses with such a statement). A policy that still acts "
            "well while its statements become false no longer acts on what it says."
        ),
        table=table,
        is_over_time=True,
    )


def _rows(run: str, iteration: int, tally: _Tally) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for about in sorted(tally.claims):
        example, claim = tally.examples.get(about, (None, None))
        rows.append(
            {
                "run": run,
                "iteration": iteration,
                "about": about,
                "claims": tally.claims[about],
                "false_share": round(tally.false[about] / tally.claims[about], 4),
                "turns_judged": round(tally.num_judged / tally.num_turns, 4),
                "example": example,
                "said": claim.said if claim else None,
                "truth": claim.truth if claim else None,
            }
        )
    return rows
