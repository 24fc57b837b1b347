"""A run with a curriculum: its shares by hand from stored selections; killed, continued, verified, forged, reported."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from starpo.flows.console.start import train_here
from starpo.flows.console.terminal import Console
from starpo.flows.presets import preset
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import page_data
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from tests.flows.command import ragen
from tests.integration.forging import RUN, artifact, forge, verify
from tests.integration.run_digests import digests

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
WINDOW, TARGET, FLOOR = 3, 0.5, 0.3
SETTINGS = {
    "environment": {
        "type": "levels",
        "environment": {"type": "frozen_lake", "observation": "compact", "slip": 0.0},
        "fields": ["size"],
        "values": [2, 3, 4],
    },
    "curriculum": {"type": "pools", "window": WINDOW, "target": TARGET, "floor": FLOOR},
    "rollout.num_groups": 5,
    "evaluation.num_prompts": 6,
    "filter.should_drop_zero_variance": False,
    "iterations": 4,
}
STAGES = ["curriculum", "rollout", "variance_filter"]
"""What decides on levels, and what they decide; the other stages take longest to compute again."""
TRAIN = """
from tests.integration.test_curriculum import SETTINGS, train
import sys
train(sys.argv[1], SETTINGS)
"""


def train(folder: str, settings: dict[str, object]) -> Store:
    store = Store(folder)
    train_here(store, RUN, "smoke", preset("smoke", settings), Console(quiet=True))
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return train(str(tmp_path_factory.mktemp("curriculum") / "store"), SETTINGS)


def begun(store: Store, folder: Path) -> Path:
    """Return a folder of a store that has the run's first checkpoint, which takes longest to make."""
    place = artifact(folder_of(store), 0, "warm_start", "checkpoint")
    shutil.copytree(place, folder / "checkpoint" / place.name)
    return folder


def folder_of(store: Store) -> Path:
    return Path(store.url)


def test_shares_follow_stored_selections(store: Store) -> None:
    """The rule again, in plain Python, from the success rates that the selections hold."""
    recent: dict[str, list[float]] = {"size-2": [], "size-3": [], "size-4": []}
    moved = set()
    for iteration in range(4):
        stages = store.runs.iteration(RUN, iteration)
        means = {level: sum(rates) / len(rates) if rates else None for level, rates in recent.items()}
        weights = {level: 1.0 if p is None else min(p / TARGET, (1 - p) / (1 - TARGET)) for level, p in means.items()}
        total = sum(weights.values())
        shares = {
            level: FLOOR / 3 + (1 - FLOOR) * (weight / total) if total else 1 / 3 for level, weight in weights.items()
        }
        rows = store.read_table("curriculum", stages["curriculum"]["curriculum"]).to_pylist()
        assert {row["level"]: row["share"] for row in rows} == pytest.approx(shares)
        assert {row["level"]: row["success"] for row in rows} == means
        moved.add(tuple(row["share"] for row in rows))
        groups = store.read_table("selection", stages["variance_filter"]["selection"]).to_pylist()
        assert len(groups) == 5
        for level, rates in recent.items():
            rates += [group["success_rate"] for group in groups if group["env"] == level]
            recent[level] = rates[-WINDOW:]
    assert len(moved) > 1


def test_groups_are_as_the_shares_say(store: Store) -> None:
    for iteration in range(4):
        stages = store.runs.iteration(RUN, iteration)
        rows = store.read_table("curriculum", stages["curriculum"]["curriculum"]).to_pylist()
        played = pl.DataFrame(store.read_table("selection", stages["variance_filter"]["selection"], ["env"]))["env"]
        for row in rows:
            assert abs(row["owed"] + 5 * row["share"] - played.to_list().count(row["level"])) <= 1.5


def test_verify_names_forged_shares(store: Store) -> None:
    outcome = verify(folder_of(store), stages=STAGES)
    assert outcome.outcome == "verified"
    assert sum(finding.stage == "curriculum" for finding in outcome.findings) == 8
    place = artifact(folder_of(store), 2, "curriculum", "curriculum")
    kept = {file: file.read_bytes() for file in place.iterdir()}

    def swap(rows: list[dict[str, float]]) -> None:
        rows[0]["share"], rows[1]["share"] = rows[1]["share"] + 0.01, rows[0]["share"] - 0.01

    try:
        forge(place, swap)
        faults = [f for f in verify(folder_of(store), stages=["curriculum"]).findings if f.verdict.is_fault]
    finally:
        for file, data in kept.items():
            file.write_bytes(data)
    named = [fault for fault in faults if fault.check == "curriculum"]
    assert (named[0].iteration, named[0].verdict) == (2, Verdict.DIFFERENT)
    assert "share" in named[0].detail
    assert "size-2" in named[0].detail


def test_killed_run_continues_alike(store: Store, tmp_path: Path) -> None:
    """Killed as soon as the second curriculum is stored, and again at the third."""
    folder = begun(store, tmp_path / "store")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for number in (2, 3):
        process = subprocess.Popen([sys.executable, "-c", TRAIN, str(folder)], cwd=ROOT, env=environment)
        while len(list(folder.glob("curriculum/*/manifest.json"))) < number and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert digests(train(str(folder), SETTINGS), RUN) == digests(store, RUN)
    assert verify(folder, stages=STAGES).outcome == "verified"


def test_levels_are_shown_and_queried(store: Store) -> None:
    panels = {panel["title"]: panel for panel in page_data(gather(store, RUN))["panels"]}
    assert [line["label"] for line in panels["Shares of levels"]["lines"]] == ["size-2", "size-3", "size-4"]
    shown = json.loads(ragen("show", RUN, "--iteration", "3", "--json", "--store", store.url).stdout)
    assert [level["level"] for level in shown["levels"]] == ["size-2", "size-3", "size-4"]
    rows = json.loads(ragen("show", RUN, "--json", "--store", store.url).stdout)["per_iteration"]
    assert {"share/size-2", "share/size-3", "share/size-4"} <= set(rows[0])
    with open_database(store, [RUN]) as database:
        sums = database.query("select iteration, sum(share) as s from curriculum group by 1 order by 1").to_pylist()
    assert [row["s"] for row in sums] == pytest.approx([1.0] * 4)


def test_ahead_and_attempts_are_verified(store: Store, tmp_path: Path) -> None:
    ahead = {**SETTINGS, "rollout.staleness": 1, "update.importance_cap": 2.0, "iterations": 2}
    attempts = {
        **SETTINGS,
        "rollout.max_attempts": 2,
        "filter.num_wanted": 6,
        "filter.strategy": "none",
        "iterations": 2,
    }
    for name, settings in (("ahead", ahead), ("attempts", attempts)):
        train(str(begun(store, tmp_path / name)), settings)
        assert verify(tmp_path / name, stages=STAGES).outcome == "verified", name
