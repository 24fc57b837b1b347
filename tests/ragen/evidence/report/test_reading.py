"""A report on a damaged run is still made, and names what is missing."""

import shutil
from pathlib import Path

import pytest

from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.store import Store


def folder(store: Store, iteration: int, stage: str, kind: str) -> Path:
    return Path(store.url) / kind / store.runs.iteration("hostile", iteration)[stage][kind]


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.ci
def test_an_intact_run_misses_nothing(stored_run: Store) -> None:
    data = gather(stored_run, "hostile")
    assert data.missing == []
    assert 'id="missing"' not in render_report(data)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("stage", "kind", "has_trajectories", "has_decisions"),
    [
        ("rollout", "turns", False, True),
        ("reward", "rewards", True, True),
        ("variance_filter", "selection", True, False),
        ("update", "samples", True, True),
    ],
)
def test_missing_artifact_leaves_a_named_gap(
    damaged_run: Store, stage: str, kind: str, has_trajectories: bool, has_decisions: bool
) -> None:
    key = damaged_run.runs.iteration("hostile", 1)[stage][kind]
    shutil.rmtree(folder(damaged_run, 1, stage, kind))
    data = gather(damaged_run, "hostile")
    (missing,) = data.missing
    assert (missing.iteration, missing.what) == (1, f"{kind} of {stage} ({key})")
    assert missing.reason.startswith(f"no artifact {kind}/{key} in the store")
    assert (1 in [e.iteration for e in data.rollouts]) == has_trajectories
    assert (1 in {d.iteration for d in data.decisions}) == has_decisions
    page = render_report(data)
    assert "1 part of this run cannot be read; the rest is shown." in page
    assert f"{kind} of {stage} ({key})" in page


@pytest.mark.ci
def test_damaged_and_missing_files_distinguished(damaged_run: Store) -> None:
    flip_a_byte(folder(damaged_run, 0, "variance_filter", "metrics") / "part-00000.parquet")
    manifest = folder(damaged_run, 2, "evaluate:sokoban", "episodes") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"num_rows": 3', '"num_rows": 4'))
    data = gather(damaged_run, "hostile")
    assert [m.iteration for m in data.missing] == [0, 2]
    assert "the content of part-00000.parquet has changed since it was written" in data.missing[0].reason
    assert "manifest.json was changed after it was written" in data.missing[1].reason
    assert list(data.series["rollout/success_rate"]) == [1, 2, 3]
    assert [e.iteration for e in data.evaluations] == [0, 4]


@pytest.mark.ci
def test_damaged_run_records_are_skipped(damaged_run: Store) -> None:
    runs = Path(damaged_run.url) / "runs" / "hostile"
    (runs / "state.json").write_text("{")
    (runs / "iterations" / "00001.json").write_text("not JSON")
    data = gather(damaged_run, "hostile")
    assert [(m.iteration, m.what) for m in data.missing] == [(None, "state.json"), (1, "its record")]
    assert data.state is None
    assert [e.iteration for e in data.rollouts] == [0, 2, 3]
    assert "state.json" in render_report(data)


@pytest.mark.ci
def test_dropped_checkpoint_is_not_missing(damaged_run: Store) -> None:
    key = damaged_run.runs.iteration("hostile", 0)["warm_start"]["checkpoint"]
    damaged_run.drop("checkpoint", key)
    data = gather(damaged_run, "hostile")
    assert data.missing == []
    assert not data.has_tokenizer
    assert "no checkpoint with the tokenizer is in the store" in render_report(data)
