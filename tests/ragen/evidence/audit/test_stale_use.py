"""Age of the trajectories trained on: within the limit, beyond it, and unknown."""

import json
from typing import Any

import pyarrow as pa

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.stale_use import stale_use
from starpo.ragen.evidence.audit.views import DATASET_VIEWS, RECORD_VIEWS
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.reward.compute import compute_rewards

from .conftest import _view, played_turns, samples_of


def trained(staleness: list[int | None], config: dict[str, Any] | None) -> Database:
    """Database with a run whose iterations trained on turns of these ages."""
    turns = played_turns()
    rewards = compute_rewards(turns, RewardConfig())
    samples = samples_of(select_groups(turns, rewards, FilterConfig(keep=0.5)), rewards)
    view = _view("turns", [turns] * len(staleness))
    ages = pa.array([staleness[iteration] for iteration in view["iteration"].to_pylist()], pa.int32())
    place = view.schema.get_field_index("staleness")
    runs = [] if config is None else [{"run": "r", "config": json.dumps(config)}]
    loaded = {
        "turns": view.set_column(place, view.schema.field(place), ages),
        "samples": _view("samples", [samples] * len(staleness)),
        "runs": pa.Table.from_pylist(runs, schema=RECORD_VIEWS["runs"]),
    }
    empty = {name: schema.empty_table() for name, schema in DATASET_VIEWS.items()}
    return Database(lambda name, _: {**empty, **loaded}[name])


def test_within_the_limit() -> None:
    with trained([0, 1, 2, 0], {"online_k": 3, "rollout": {}}) as database:
        finding = stale_use(database)
    assert finding.severity == "note"
    assert finding.summary == "Up to 2 updates old, in 4 iterations; at most 2 allowed."
    assert finding.table["most"].to_pylist() == [0, 1, 2, 0]
    assert finding.table["trajectories"].to_pylist() == [4] * 4


def test_use_beyond_limit_is_fault() -> None:
    with trained([0, 1, 2], {"online_k": 2, "rollout": {}}) as database:
        finding = stale_use(database)
    assert finding.severity == "fault"
    (row,) = finding.table.to_pylist()
    assert (row["iteration"], row["most"], row["allowed"], row["beyond"]) == (2, 2, 1, 4)
    assert "4 trajectories of 1 iteration are older than that" in finding.summary


def test_foreign_player_reported_as_unknown() -> None:
    with trained([None, 0], {"rollout": {}}) as database:
        finding = stale_use(database)
    assert (finding.severity, finding.table["unknown"].to_pylist()) == ("note", [4, 0])
    assert finding.summary.endswith("for 1 iteration it is unknown, as no policy of this run played them.")
