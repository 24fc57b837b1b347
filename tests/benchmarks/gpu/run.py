"""A run of `sokoban.toml`: what its stages take, and what it learns."""

import starpo
from starpo.ragen.core.counts import counted
from starpo.ragen.evidence.run_facts import evaluation_curve
from starpo.ragen.evidence.times import BETWEEN, times_of
from tests.benchmarks.gpu.learning import SETTINGS
from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.setup import Setup

NAME = "gpu"
ITERATION = ("rollout", "reward", "variance_filter", "update", BETWEEN)
"""Stages of every iteration; evaluations and the warm start are not."""


def measure(report: Report, setup: Setup) -> None:
    """Train, and report the seconds of the stages, success on the panel, and the share of playing and learning."""
    overrides = {"policy.name_or_path": setup.model, **dict(setup.run)}
    run = starpo.train(SETTINGS, overrides, store=setup.out / "store", run=NAME)
    rows = {row["stage"]: row for row in times_of(run.store, run.name)}
    report.add_peak_memory("the run")
    for stage, row in rows.items():
        report.add(stage, row["seconds"], "s" if row["times"] == 1 else f"s, median of {row['times']}")
    medians = {stage: row["seconds"] for stage, row in rows.items() if stage in ITERATION}
    learned = sum(row["seconds"] for stage, row in rows.items() if stage.startswith("update: "))
    share = (medians["rollout"] + learned) / sum(medians.values())
    report.add("share of an iteration that is playing and learning", f"{share:.0%}")
    for point in evaluation_curve(run.store, run.store.runs.get(run.name)):
        report.add(f"panel success after {counted(point['iteration'], 'iteration')}", round(point["success"], 3))
