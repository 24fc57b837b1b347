"""A run on a mixture of environments: exact shares, metrics and filtering per part; verified, replayed and reported."""

import gzip
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from tests.integration.forging import RUN, verify

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.timeout(600),
]

SOKOBAN = {"type": "sokoban", "observation": "compact", "generator": "distance", "min_solution": 1, "max_solution": 3}
LAKE = {"type": "frozen_lake", "observation": "compact", "slip": 0.0}
PARTS = {
    "boxes": {"share": 2.0, "environment": SOKOBAN},
    "ice": {"share": 1.0, "environment": LAKE},
    "bandit": {"share": 1.0, "environment": {"type": "bandit"}},
}
SETTINGS = {
    "environment": {"type": "mixture", "parts": PARTS},
    "rollout.num_groups": 8,
    "filter.scope": "environment",
    "iterations": 1,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Path:
    folder = tmp_path_factory.mktemp("mixture") / "store"
    starpo(preset("smoke", SETTINGS), preset="smoke", store=str(folder), run=RUN)
    return folder


def metrics(store: Store, stages: dict[str, dict[str, str]], stage: str) -> dict[str, float]:
    table = store.read_table("metrics", stages[stage]["metrics"])
    return metric_values(table)


def test_shares_exact_parts_filtered_apart(folder: Path) -> None:
    store, config = Store(str(folder)), preset("smoke", SETTINGS)
    stages = store.runs.iterations(RUN)[0]
    turns = pl.DataFrame(store.read_table("turns", stages["rollout"]["turns"], columns=["group_id", "env", "env_seed"]))
    groups = turns.unique("group_id", maintain_order=True).sort("group_id")
    assert Counter(groups["env"]) == {"boxes": 4, "ice": 2, "bandit": 2}
    assert groups["env"].to_list() == config.environment.assign_parts(8)
    assert [config.environment.tag_of(seed) for seed in groups["env_seed"]] == groups["env"].to_list()
    selection = pl.DataFrame(store.read_table("selection", stages["variance_filter"]["selection"]))
    kept = selection.filter("kept")
    assert all(count <= {"boxes": 2}.get(tag, 1) for tag, count in Counter(kept["env"]).items())
    measured = metrics(store, stages, "diagnose")
    assert measured["filter/num_kept"] == sum(measured[f"filter/num_kept/{tag}"] for tag in PARTS) == kept.height
    successes = [
        measured[f"rollout/success_rate/{tag}"] * share for tag, share in zip(PARTS, (0.5, 0.25, 0.25), strict=True)
    ]
    assert sum(successes) == pytest.approx(measured["rollout/success_rate"])


def test_one_panel_with_success_by_part(folder: Path) -> None:
    store = Store(str(folder))
    stages = store.runs.iterations(RUN)[0]
    assert [name for name in stages if name.startswith("evaluate:")] == ["evaluate:mixture"]
    measured = metrics(store, stages, "evaluate:mixture")
    numbers = {tag: measured[f"evaluation/mixture/{tag}/num_episodes"] for tag in PARTS}
    assert numbers == {"boxes": 4.0, "ice": 2.0, "bandit": 2.0}
    mean = sum(measured[f"evaluation/mixture/{tag}/success"] * number for tag, number in numbers.items()) / 8
    assert measured["evaluation/mixture/success"] == pytest.approx(mean)
    assert measured["evaluation/mixture/num_seen_prompts"] == 0  # the bandit's few states may occur in training too


def test_the_run_is_verified(folder: Path) -> None:
    verification = verify(folder)
    assert [f for f in verification.findings if f.verdict is not Verdict.SAME] == []


def test_run_replayed_from_its_turns(folder: Path) -> None:
    store = Store(str(folder))
    run = replay(RUN, store=store.url)
    recorded, replayed = store.runs.iterations(RUN)[0], store.runs.iterations(run)[0]
    assert replayed["update"] == recorded["update"]


def test_the_report_draws_every_part(folder: Path) -> None:
    data = gather(Store(str(folder)), RUN)
    assert "rollout/success_rate/boxes" in data.series
    assert data.rollouts
    assert [embedded.num_not_drawn for embedded in (*data.rollouts, *data.evaluations)] == [0] * 3
    first = json.loads(gzip.decompress(data.rollouts[0].packed))
    members = [member for group in first["groups"] for member in group["members"]]
    drawn = {(member["env"], member["turns"][0]["frames"][0]["kind"]) for member in members}
    assert drawn == {("boxes", "sokoban"), ("ice", "frozen_lake"), ("bandit", "arms")}
