"""True credit beside the estimated one, at every turn of a trajectory: which move lost it?

credits, credit_estimates of an iteration -> credit_of_turns -> JSON of each turn
"""

from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.config.estimation import estimator_name
from starpo.ragen.config.load import recorded_config
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.groups import Row
from starpo.ragen.store.measurements import measurements
from starpo.schemas.manifest import Manifest

_SIGNIFICANT = 1.96
"""Standard errors beyond which a true advantage is not 0, with 95% confidence."""

ByTurn = Mapping[tuple[str, int], Any]


def credit_places(reader: Reader, places: Sequence[Place]) -> list[Place]:
    """Return where the measured credit of an iteration's turns lies; what cannot be read is noted by the reader.

    Args:
        reader: Reader of the store.
        places: Places of the iteration's artifacts.
    """
    if not places:
        return []
    iteration = places[0].iteration
    stages: dict[str, dict[str, str]] = {}
    for place in places:
        stages.setdefault(place.stage, {})[place.kind] = place.key

    def manifest(kind: str, key: str) -> Manifest | None:
        return reader.manifest(Place(iteration, kind, kind, key))

    measured = measurements(reader.store, {iteration: stages}, manifest).get(iteration, {})
    return [Place(iteration, stage, kind, key) for stage, keys in measured.items() for kind, key in keys.items()]


def own_estimator(run: str, config: Mapping[str, Any], iteration: int) -> str:
    """Return the name of a run's own estimator at an iteration; "" if its settings are of another release."""
    try:
        return estimator_name(recorded_config(run, config, "").at(iteration).update)
    except StarPOError:
        return ""


def credit_of_turns(credits: Sequence[Row], estimates: Sequence[Row], estimator: str) -> dict[tuple[str, int], Row]:
    """Return the credit of turns in the format of the page, by trajectory and turn.

    Args:
        credits: Rows of `credits`; of several of a turn, the one with the most continuations is shown.
        estimates: Rows of `credit_estimates`.
        estimator: Name of the run's own estimator, whose estimate stands first.
    """
    estimated: dict[tuple[str, int], dict[str, float]] = {}
    values = {(row["trajectory_id"], row["turn"]): row["estimate"] for row in estimates if row["quantity"] == "value"}
    estimates = [row for row in estimates if row["quantity"] == "advantage"]
    for row in sorted(estimates, key=lambda row: row["estimator"] != estimator):
        estimated.setdefault((row["trajectory_id"], row["turn"]), {})[row["estimator"]] = row["estimate"]
    by_turn: dict[tuple[str, int], Row] = {}
    for row in sorted(credits, key=lambda row: row["num_continuations"]):
        place = row["trajectory_id"], row["turn"]
        by_turn[place] = {
            "advantage": row["advantage"],
            "error": row["advantage_se"],
            "value": row["value"],
            "after": row["value_after"],
            "critic": values.get(place),
            "continuations": row["num_continuations"],
            "own": estimator if estimator in estimated.get(place, {}) else None,
            "estimates": estimated.get(place, {}),
        }
    return by_turn


def decided_at(credit: Mapping[int, Row], *, success: bool | None) -> int | None:
    """Return the turn that lost a failed trajectory, or won a successful one.

    Args:
        credit: Turn -> its credit.
        success: Whether the trajectory succeeded; None if it is not known.

    Returns:
        The turn with the lowest true advantage, or the highest; None if its 95% interval does not exclude 0.
    """
    if success is None or not credit:
        return None
    sign = 1 if success else -1
    turn = max(credit, key=lambda turn: (sign * credit[turn]["advantage"], -turn))
    is_clear = sign * credit[turn]["advantage"] > max(_SIGNIFICANT * credit[turn]["error"], 1e-9)
    return turn if is_clear else None
