"""What a run cost, by hand."""

from datetime import UTC, datetime

import pytest

from starpo.ragen.evidence.cost import cost
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.records.run import RunRecord
from starpo.schemas.manifest import Manifest, Stage
from tests.examples import example

RUN = RunRecord(
    name="a", flow="starpo", preset=None, created=datetime(2026, 11, 24, 12, tzinfo=UTC), config={"iterations": 2}
)
CPU = {"cpu": "Xeon", "cpus": 2, "machine": "x86_64"}
GPU = {"cpu": "Epyc", "cpus": 16, "gpu": "NVIDIA H100", "gpus": 1}


def manifest(at: str, seconds: float, hardware: dict, kind: str = "metrics", num_tokens: float = 0.0) -> Manifest:
    """Manifest of work that ended at this time of the day on which the run began at noon."""
    provenance = {"seconds": seconds, "written_at": f"2026-11-24T{at}+00:00", "hardware": hardware}
    facts = {"kind": kind, "key": "k", "stage": Stage(name="s", version=1), "settings": {"num_epochs": 2}, "inputs": {}}
    facts |= {"seed": None, "dataset_version": None, "num_rows": None, "files": ()}
    headline = {"update/num_tokens": num_tokens}
    return Manifest(**facts, content_digest="0" * 64, provenance=provenance, headline=headline)


def test_work_is_counted_by_machine(tmp_path):
    manifests = {
        Place(0, "warm_start", "checkpoint", "w"): manifest("11:59:59.999", 90.0, CPU),  # before the run was begun
        Place(0, "reward", "rewards", "r0"): manifest(
            "12:00:10.000", 1.0, {"cpu": "Epyc", "cpus": 16}
        ),  # it loads no torch
        Place(0, "update", "checkpoint", "u0"): manifest("12:00:20.000", 4.0, GPU, "checkpoint", 600.0),
        Place(0, "update", "metrics", "u0"): manifest("12:00:20.100", 4.1, GPU),  # the same work, counted once
        Place(1, "update", "checkpoint", "u1"): manifest("12:00:30.000", 6.0, CPU, "checkpoint", 400.0),
    }
    run_cost = cost(Reader(Store(str(tmp_path))), RUN, manifests)
    assert run_cost.machines == {
        "2 cores of Xeon": pytest.approx(6.0),
        "1 x NVIDIA H100, 16 cores of Epyc": pytest.approx(5.1),
    }
    assert (run_cost.num_reused, run_cost.reused_seconds) == (1, 90.0)
    assert (run_cost.trained.tokens, run_cost.trained.seconds) == (2000, 10.0)  # (600 + 400) tokens, two epochs each
    assert dict(run_cost.named)["Tokens trained"] == "2,000 (200 per second of update)"
    assert dict(run_cost.named)["Reused, not counted"] == "1 stage of other runs, 1.5 min"


def test_played_tokens_are_stored_responses(tmp_path):
    store, turns = Store(str(tmp_path)), example("turns")
    facts = Facts(key="0" * 32, stage=Stage(name="rollout", version=1), settings={}, inputs={}, seed=0)
    stored = store.put_table("turns", turns, facts)
    num_tokens = sum(map(len, turns["response_ids"].to_pylist()))
    assert num_tokens > 0
    made = stored.model_copy(update={"provenance": manifest("12:00:10", 2.0, CPU).provenance})
    run_cost = cost(Reader(store), RUN, {Place(0, "rollout", "turns", facts.key): made})
    assert (run_cost.played.tokens, run_cost.played.tokens_per_s) == (num_tokens, num_tokens / 2)
