"""What `starpo diagnose` says of stored metrics."""

import json

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.ragen.learning.control.collapse import SUCCESS
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage


def put_run(store: Store, name: str, flow: str, successes: list[float]) -> None:
    """Store a run whose training success is known."""
    store.runs.create(name, flow=flow, preset="smoke", config=preset("smoke").model_dump(mode="json"))
    for iteration, success in enumerate(successes):
        key, table = f"{iteration:032x}", metrics_table(iteration, "diagnose", {SUCCESS: success})
        store.put_table(
            "metrics", table, Facts(key=key, stage=Stage(name="diagnose", version=1), settings={}, inputs={}, seed=0)
        )
        store.runs.record_stage(name, iteration, "rollout", {"turns": key})
        store.runs.record_stage(name, iteration, "diagnose", {"metrics": key})


@pytest.mark.ci
@pytest.mark.parametrize(("successes", "at"), [([0.8] * 8 + [0.1] * 8, 8), ([0.8] * 16, None)])
def test_halved_success_is_reported(tmp_path, successes: list[float], at: int | None) -> None:
    store = Store(str(tmp_path / "store"))
    put_run(store, "mine", "starpo", successes)
    arguments = ["diagnose", "mine", "--every", "0", "--store", store.url]
    output = CliRunner().invoke(app, arguments).stdout
    assert ("training success had halved for good at iteration 8" in output) == (at is not None)
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["halved_at"] == at


@pytest.mark.parametrize("num_groups", [1, 2])
def test_bucket_without_snr_says_why(tmp_path, num_groups: int) -> None:
    store = Store(str(tmp_path / "store"))
    put_run(store, "mine", "starpo", [0.5])
    bucket = {
        "num_groups": num_groups,
        "reward_std": 0.5,
        "task_norm": 2.0,
        **({"task_snr": 0.25} if num_groups > 1 else {}),
    }
    values = {f"gradients/bucket_1/{name}": value for name, value in bucket.items()}
    made = Facts(key="f" * 32, stage=Stage(name="gradient_probe", version=1), settings={}, inputs={}, seed=0)
    store.put_table("metrics", metrics_table(0, "gradient_probe", values), made)
    store.runs.record_stage("mine", 0, "gradient_probe", {"metrics": made.key})
    output = CliRunner().invoke(app, ["diagnose", "mine", "--every", "0", "--store", store.url]).stdout
    assert "task snr" in output
    assert "norm: of the mean gradient of the bucket's groups" in output
    assert ("a blank signal-to-noise ratio (snr): it takes two groups" in output) == (num_groups == 1)
    assert ("0.25" in output) == (num_groups == 2)
