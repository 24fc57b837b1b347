"""Decisions of the filter, group by group.

selection of every iteration -> Decision
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from sys import intern

from starpo.ragen.evidence.reading import Place, Reader, side_by_side
from starpo.ragen.store.attempts import attempt_of


@dataclass(frozen=True, slots=True)
class Decision:
    """The filter's decision on one group.

    Attributes:
        iteration: Number of updates done before.
        group_id: Id of the group.
        rank: Rank by score, 0 is best; groups of a further attempt follow those of earlier attempts.
        score: Score assigned by the filter.
        return_mean: Mean return of the group's valid trajectories.
        success_rate: Success rate of the same.
        num_trajectories: Number of trajectories of the group.
        num_valid: Number of those that enter its means.
        is_kept: Whether the group was kept for training.
        reason: Reason of the decision, in words.
    """

    iteration: int
    group_id: str
    rank: int
    score: float
    return_mean: float
    success_rate: float
    num_trajectories: int
    num_valid: int
    is_kept: bool
    reason: str


def read_decisions(reader: Reader, artifacts: Sequence[Place]) -> list[Decision]:
    """Read all readable decisions of a run, by iteration and rank."""
    selections = sorted(
        (place for place in artifacts if place.kind == "selection"),
        key=lambda place: (place.iteration, attempt_of(place.stage)),
    )
    decisions: list[Decision] = []
    num_groups: Counter[int] = Counter()

    def read(place: Place) -> list[Decision] | None:
        return reader.kept(("decisions", place), lambda: _decisions(reader, place))

    for place, of_attempt in zip(selections, side_by_side(reader.store, read, selections), strict=True):
        if of_attempt is not None:
            earlier = num_groups[place.iteration]
            decisions += [replace(one, rank=earlier + one.rank) for one in of_attempt] if earlier else of_attempt
            num_groups[place.iteration] += len(of_attempt)
    return decisions


def _decisions(reader: Reader, place: Place) -> list[Decision] | None:
    """Read the decisions of one attempt, by rank."""
    table = reader.table(place)
    if table is None:
        return None
    return [
        Decision(
            iteration=place.iteration,
            group_id=intern(row["group_id"]),
            rank=row["rank"],
            score=row["score"],
            return_mean=row["return_mean"],
            success_rate=row["success_rate"],
            num_trajectories=row["num_trajectories"],
            num_valid=row["num_valid"],
            is_kept=row["kept"],
            reason=intern(row["reason"]),
        )
        for row in sorted(table.to_pylist(), key=lambda row: row["rank"])
    ]
