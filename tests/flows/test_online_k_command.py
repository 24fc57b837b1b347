"""The output of `ragen online-k` names the policy in the denominator of the clipped ratio."""

import json
from pathlib import Path

import pytest

from starpo.flows.cli.online_k import print_online
from starpo.ragen.evidence.diagnostics.metrics import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage

PLAIN, SAMPLER = (f"online-k.online_k-2-ratio_to-{ratio}-s0-1a2b3c4d" for ratio in ("update_start", "behaviour"))
_MEASURED = {"kl": 0.25, "effective_sample_size_trajectories": 0.5}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with two runs of one update on one rollout; the first has settings of version 0.1.0, without `ratio_to`."""
    store, stage = Store(str(tmp_path)), Stage(name="update", version=2)
    values = {f"update/validity_before/{name}": value for name, value in _MEASURED.items()}
    store.put_table(
        "metrics", metrics_table(0, "update", values), Facts(key="m", stage=stage, settings={}, inputs={}, seed=0)
    )
    for name, update in ((PLAIN, {"clip_low": 0.2}), (SAMPLER, {"ratio_to": "behaviour"})):
        config = {"online_k": 2, "seed": 0, "environment": {"type": "sokoban"}, "update": update}
        store.runs.create(name, flow="starpo", preset=None, config=config)
        store.runs.record_stage(name, 0, "rollout", {"turns": "t"})
        store.runs.record_stage(name, 0, "update", {"metrics": "m"})
    return store


def test_json_has_it(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    print_online(store, ["online-k.*"], as_json=True)
    assert [run["ratio_to"] for run in json.loads(capsys.readouterr().out)] == ["behaviour", "update_start"]


def test_every_table_has_it(store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_online(store, [SAMPLER, PLAIN], as_json=False)
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert f"{PLAIN}: online_k = 2, ratio_to = update_start" in words
    assert f"{SAMPLER}: online_k = 2, ratio_to = behaviour" in words
    first, second = out[out.index("Online-k; first, best, last") :].split("\n\n")[:2]  # records, as no table fits
    for record, ratio in ((first, "update_start"), (second, "behaviour")):
        assert ["ratio", "to", ratio] in [line.split() for line in record.splitlines()], out
