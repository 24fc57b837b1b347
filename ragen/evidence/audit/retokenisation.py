"""Audit of tokens: whether encoding the text of a turn again yields the sampled tokens.

turns: prompt_ids, response_ids -> text -> tokens again, by the run's own tokenizer -> differences

Training uses the stored tokens, so a difference is harmless here. It shows the effect that re-tokenisation would have
on data exported as text, and on a trainer that builds its tokens from messages.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding, first_to_last
from starpo.ragen.evidence.audit.views import WITHOUT_TOKENS

DRIFT_SHARE = 0.05
"""Share of turns with a difference in the last iteration at which the audit warns."""
_ROWS_AT_ONCE = 2_048
_SHOWN_TOKENS = 8

_TURNS = f"""
with counted as (
    select run, iteration, row_number() over (partition by run order by iteration) - 1 as place,
        count(*) over (partition by run) as total
    from (select distinct run, iteration from turns where not is_reused)
)
select run, iteration, trajectory_id, turn, prompt_ids, response_ids, {WITHOUT_TOKENS} as is_without
from turns join counted using (run, iteration)
where finish_reason <> 'none' and not is_reused and origin <> 'greedy'
    and (place = total - 1 or place % ((total + 8) // 9) = 0)
"""
"""Covers at most ten iterations of a run: the first, the last, and evenly spaced ones between."""
_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "iteration": pa.int32(),
        "turns": pa.int64(),
        "without_tokens": pa.int64(),
        "differ": pa.float64(),
        "responses": pa.float64(),
        "prompts": pa.float64(),
        "seams": pa.float64(),
        "response_tokens": pa.float64(),
        "example": pa.string(),
        "stored": pa.string(),
        "again": pa.string(),
    }
)


@dataclass
class _Tally:
    """Counts of one iteration. `example`: the first turn that differs, with its stored tokens and the re-encoded ones,
    both from the point where they diverge."""

    num_turns: int = 0
    num_without: int = 0
    num_undecoded: int = 0
    num_tokens: int = 0
    num_tokens_differ: int = 0
    differ: Counter[str] = field(default_factory=Counter)
    example: tuple[tuple[str, int], str, str] | None = None

    def row(self, run: str, iteration: int) -> dict[str, Any]:
        num_decoded = self.num_turns - self.num_without - self.num_undecoded
        shares = {
            name: round(self.differ[name] / num_decoded, 4) if num_decoded else None
            for name in ("differ", "responses", "prompts", "seams")
        }
        facts = {"run": run, "iteration": iteration, "turns": self.num_turns, "without_tokens": self.num_without}
        tokens = round(self.num_tokens_differ / self.num_tokens, 4) if self.num_tokens else None
        (trajectory_id, turn), stored, again = self.example or (("", 0), None, None)
        example = f"{trajectory_id}, turn {turn}" if self.example else None
        return {
            **facts, **shares, "response_tokens": tokens, "example": example, "stored": stored, "again": again,
        }  # fmt: skip


def retokenisation_drift(database: Database) -> Finding:
    """Measure the share of turns whose stored tokens differ from those of their re-encoded text, over time."""
    tallies: dict[tuple[str, int], _Tally] = {}
    for batch in database.stream(_TURNS):
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            _count(database, batch.slice(start, _ROWS_AT_ONCE).to_pylist(), tallies)
    rows = [tally.row(run, iteration) for (run, iteration), tally in sorted(tallies.items())]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    known = [row["differ"] for row in rows if row["differ"] is not None]
    return Finding(
        title="Re-tokenisation drift",
        severity="warning" if known and known[-1] >= DRIFT_SHARE else "note",
        summary=_summary(table, tallies),
        meaning=(
            "The tokens of each turn, prompt and response as one text, are decoded and encoded again by the run's "
            "stored tokenizer; in a long run, those of ten evenly spaced iterations. differ: share of turns whose "
            "tokens change; responses, prompts: of turns in which that part alone changes too; seams: neither does. "
            "response_tokens: share of sampled tokens from the first difference of a response to its last. stored and "
            "again show the example from where they part. A policy may sample a spelling that the tokenizer would not "
            "choose, so some drift is natural; training here uses the stored tokens. A trainer that tokenises text "
            "again would train on other tokens than were sampled: give it `starpo export --format atif` or `datasets`, "
            "not messages."
        ),
        table=table,
        is_over_time=True,
    )


def _count(database: Database, rows: list[dict[str, Any]], tallies: dict[tuple[str, int], _Tally]) -> None:
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        tally = tallies.setdefault((row["run"], row["iteration"]), _Tally())
        tally.num_turns += 1
        if row["is_without"]:
            tally.num_without += 1
        else:
            by_run.setdefault(row["run"], []).append(row)
    for run, with_tokens in by_run.items():
        wholes = [row["prompt_ids"] + row["response_ids"] for row in with_tokens]
        again = database.retokenise(run, wholes)
        if again is None:
            for row in with_tokens:
                tallies[run, row["iteration"]].num_undecoded += 1
            continue
        for row in with_tokens:
            tallies[run, row["iteration"]].num_tokens += len(row["response_ids"])
        both = zip(with_tokens, wholes, again, strict=True)
        changed = [(row, ids) for row, whole, ids in both if ids != whole]
        # Prompt and response are re-encoded separately only for the few turns that differ, as encoding is costly.
        parts = database.retokenise(run, [row[name] for row, _ in changed for name in ("prompt_ids", "response_ids")])
        for (row, ids), prompt, response in zip(changed, (parts or [])[::2], (parts or [])[1::2], strict=True):
            _note(tallies[run, row["iteration"]], row, prompt, response, ids)


def _note(tally: _Tally, row: dict[str, Any], prompt: list[int], response: list[int], joined: list[int]) -> None:
    """Record a turn that differs."""
    tally.differ["differ"] += 1
    stored, again = row["prompt_ids"] + row["response_ids"], joined
    if prompt != row["prompt_ids"]:
        tally.differ["prompts"] += 1
        stored, again = row["prompt_ids"], prompt
    if response != row["response_ids"]:
        tally.differ["responses"] += 1
        stored, again = row["response_ids"], response
        tally.num_tokens_differ += _num_between(stored, again)
    if prompt == row["prompt_ids"] and response == row["response_ids"]:
        tally.differ["seams"] += 1
    place = row["trajectory_id"], row["turn"]
    if tally.example is None or place < tally.example[0]:
        start = _num_alike(stored, again)
        left, right = (" ".join(map(str, ids[start : start + _SHOWN_TOKENS])) for ids in (stored, again))
        tally.example = (place, left, right)


def _num_alike(left: Iterable[int], right: Iterable[int]) -> int:
    """Length of the common prefix."""
    number = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        number += 1
    return number


def _num_between(stored: Sequence[int], again: Sequence[int]) -> int:
    """Number of stored tokens from the first difference to the last."""
    alike = _num_alike(stored, again)
    return len(stored) - alike - _num_alike(reversed(stored[alike:]), reversed(again[alike:]))


def _summary(table: pa.Table, tallies: dict[tuple[str, int], _Tally]) -> str:
    num_turns, num_without = (sum(table[name].to_pylist()) for name in ("turns", "without_tokens"))
    if not num_turns:
        return "No responses are stored."
    unknown = []
    if num_without:
        unknown.append(f"{num_without} of {num_turns} responses were imported without tokens and cannot be checked")
    if num_undecoded := sum(tally.num_undecoded for tally in tallies.values()):
        unknown.append(
            f"{num_undecoded} of {num_turns} turns cannot be decoded: no checkpoint with their run's tokenizer is in "
            "the store"
        )
    is_any_decoded = num_without + num_undecoded < num_turns
    parts = [first_to_last(table, "differ", "share of turns that differ")] if is_any_decoded else []
    text = "; ".join([*parts, *unknown])
    return f"{text[0].upper()}{text[1:]}."
