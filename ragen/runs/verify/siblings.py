"""Choices of search, compared with the recorded candidates.

siblings, turns -> sibling_differences
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.core.candidates import CandidatesConfig
from starpo.ragen.core.visible import quoted
from starpo.ragen.runs.verify.actions import Row

_SHARED = ("response_ids", "behaviour_logprobs", "response", "executed_actions")
_PLACE = ["trajectory_id", "turn"]


def sibling_differences(siblings: pa.Table, turns: pa.Table, search: CandidatesConfig) -> Iterator[str]:
    """Compare every turn chosen by search with its chosen candidate, and its counts with the candidates' scores.

    If the search takes the best in every turn, the chosen candidate must also be the first one with the best score.

    Args:
        siblings: Dataset `siblings`, rows in any order.
        turns: Dataset `turns` of the same rollout.
        search: Settings of the search.

    Yields:
        A sentence for each turn that differs.
    """
    candidates: dict[tuple[str, int], list[Row]] = {}
    for row in siblings.sort_by([("candidate", "ascending")]).to_pylist():
        candidates.setdefault((row["trajectory_id"], row["turn"]), []).append(row)
    chosen = turns.filter(pc.equal(turns["origin"], "search"))
    for turn in chosen.select([*_PLACE, *_SHARED, "num_candidates", "num_as_good"]).to_pylist():
        own = candidates.pop((turn["trajectory_id"], turn["turn"]), [])
        found = _difference(turn, own, search)
        if found:
            yield f"trajectory {quoted(turn['trajectory_id'])}, turn {turn['turn']}: {found}"
    for name, number in candidates:
        yield f"trajectory {quoted(name)}, turn {number}: it has siblings, but was not chosen by search"


def _difference(turn: Row, candidates: list[Row], search: CandidatesConfig) -> str:
    taken = next((row for row in candidates if row["chosen"]), None)
    if taken is None:
        return "it was chosen by search, but none of its siblings is marked as chosen"
    for name in _SHARED:
        if turn[name] != taken[name]:
            return f"{name} is {quoted(turn[name])}, in the chosen sibling {quoted(taken[name])}"
    if turn["num_candidates"] != search.num_candidates:
        return f"num_candidates is {turn['num_candidates']}, in the settings {search.num_candidates}"
    same = [row for row in candidates if row["parent"] == taken["parent"]]
    num_as_good = sum(_place(row) <= _place(taken) for row in same)
    if num_as_good != turn["num_as_good"] and len(same) == search.num_candidates:
        return f"num_as_good is {turn['num_as_good']}, by the siblings' scores {num_as_good}"
    if search.takes_the_best and taken is not min(same, key=_place):
        return f"candidate {taken['candidate']} was chosen, but {min(same, key=_place)['candidate']} is better"
    return ""


def _place(candidate: Row) -> tuple[bool, float]:
    return candidate["score"] is None, -(candidate["score"] or 0.0)
