"""Training rollouts in the format of the page: text, boards, rewards, results of filter and update, tokens.

turns, turn_images, rewards, selection, samples, trained_tokens of one iteration -> Batch
"""

from collections.abc import Iterator, Mapping, Sequence

from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.credit import credit_of_turns, own_estimator
from starpo.ragen.evidence.report.embedding import TrajectoryBatch
from starpo.ragen.evidence.report.groups import Groups, OneGroup, Row
from starpo.ragen.evidence.report.images import shown_images
from starpo.ragen.evidence.report.trajectory import (
    OUTCOME_COLUMNS,
    OUTLINE_COLUMNS,
    TURN_COLUMNS,
    TrajectorySource,
    outcome,
    outline,
)
from starpo.ragen.store.measurements import MEASURED

_SAMPLE_COLUMNS = {
    "advantage": "advantage",
    "mean_ratio": "ratio",
    "clip_fraction": "clip",
    "kl_behaviour": "kl",
    "entropy": "entropy",
    "loss_share": "share",
}
"""Column of dataset `samples` -> its name in the page."""


def read_rollout(
    reader: Reader, places: Sequence[Place], source: TrajectorySource, only: OneGroup | None = None
) -> TrajectoryBatch | None:
    """Read all trajectories of an iteration, by group, those ranked best by the filter first.

    Args:
        reader: Reader of the store; anything missing other than the turns leaves gaps, not an empty page.
        places: Places of the iteration's artifacts, and of the measured credit of its turns (`credit_places`).
        source: Makes trajectories of their rows.
        only: The members of the other groups are without their turns, which are None. None: all have them.

    Returns:
        The batch, whose groups are made as they are asked for; None if there are no turns to read.
    """
    turns = Groups.read(reader, places, "turns", TURN_COLUMNS)
    if turns is None:
        return None
    images = shown_images(reader, [place for place in places if place.kind == "turn_images"])
    rewards, samples, tokens = (Groups.read(reader, places, kind) for kind in ("rewards", "samples", "trained_tokens"))
    credits, estimates = (Groups.read(reader, places, kind) for kind in MEASURED)
    estimator = own_estimator(source.run, source.config, places[0].iteration) if credits else ""
    decided = _decided(reader, places)
    unread = "the filter's decisions cannot be read" if any(place.kind == "selection" for place in places) else ""
    undecided = {"kept": None, "score": None, "success": None, "reason": unread}
    order, outlines = _order(turns, decided), turns.select(OUTLINE_COLUMNS)
    whole = set(order if only is None else [turns.named(only) or order[0]])

    def members(group: str) -> list[Row]:
        paid = rewards.by_turn(group) if rewards else {}
        sampled = {row["trajectory_id"]: row for row in samples.rows(group)} if samples else {}
        if group in whole:
            trained = tokens.by_turn(group) if tokens else {}
            estimated = estimates.rows(group) if estimates else []
            credit = credit_of_turns(credits.rows(group), estimated, estimator) if credits else {}
            trajectories = [source.whole(rows, paid, images, trained, credit) for rows in turns.trajectories(group)]
        else:
            trajectories = [outline(rows, paid) for rows in outlines.trajectories(group)]
        return [one | {"sample": _sample(sampled.get(one["id"]))} for one in trajectories]

    groups = ({"id": group, **decided.get(group, undecided), "members": members(group)} for group in order)
    return TrajectoryBatch(places[0].iteration, None, groups, turns.num_trajectories)


def read_outcomes(reader: Reader, places: Sequence[Place]) -> Iterator[Row]:
    """Read how all trajectories of an iteration ended, by group, in the order of `read_rollout`.

    Yields:
        Groups in the format of the page, with the members' `id`, `success`, `greedy` and `kinds` alone; none if there
        are no turns to read.
    """
    turns = Groups.read(reader, places, "turns", OUTCOME_COLUMNS)
    if turns is None:
        return
    for group in _order(turns, _decided(reader, places)):
        yield {"members": [{"id": rows[0]["trajectory_id"], **outcome(rows)} for rows in turns.trajectories(group)]}


def _order(turns: Groups, decided: Mapping[str, Row]) -> list[str]:
    """Return the names of the groups: those that were decided on, in that order, then the others."""
    present = set(turns.names)
    return list(dict.fromkeys([*(group for group in decided if group in present), *turns.names]))


def _decided(reader: Reader, places: Sequence[Place]) -> dict[str, Row]:
    """Return the filter's decisions on the groups, the kept ones first, each by rank."""
    tables = [reader.table(place) for place in places if place.kind == "selection"]
    selection = [row for table in tables if table is not None for row in table.to_pylist()]
    return {
        row["group_id"]: {
            "kept": row["kept"],
            "score": row["score"],
            "success": row["success_rate"],
            "reason": row["reason"],
        }
        for row in sorted(selection, key=lambda row: (not row["kept"], row["rank"]))
    }


def _sample(row: Row | None) -> Row | None:
    if row is None:
        return None
    values = {name: row[column] for column, name in _SAMPLE_COLUMNS.items()}
    return {name: None if value is None else float(f"{value:.4g}") for name, value in values.items()}
