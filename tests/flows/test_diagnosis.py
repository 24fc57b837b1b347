"""Stored runs that a back-test counts."""

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.diagnosis import backtest_runs
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.collapse import SUCCESS
from starpo.ragen.evidence.diagnostics.metrics import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.flows.command import ragen


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


def test_a_replay_is_no_run_besides_the_one_that_played(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    for name, flow in (("mine", "starpo"), ("again", "replay")):
        put_run(store, name, flow, [0.8] * 8 + [0.1] * 8)
    for asked in (None, ["mine", "again"]):
        tested = backtest_runs(store, asked)
        assert [(outcome.run, outcome.fell) for outcome in tested.scores[0].outcomes] == [("mine", 8)]
        assert list(tested.not_judged) == ["again"]


@pytest.mark.parametrize("num_groups", [1, 2])
def test_a_bucket_without_a_signal_to_noise_ratio_says_why(tmp_path, num_groups: int) -> None:
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
    said = CliRunner().invoke(app, ["diagnose", "mine", "--every", "0", "--store", store.url]).stdout
    assert "task snr" in said
    assert "norm: of the mean gradient of the bucket's groups" in said
    assert ("a blank signal-to-noise ratio (snr): it takes two groups" in said) == (num_groups == 1)
    assert ("0.25" in said) == (num_groups == 2)


def test_of_runs_that_cannot_be_judged_three_are_named_and_the_rest_counted(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    for number in range(5):
        put_run(store, f"mine-{number}", "starpo", [0.8])
    with pytest.raises(ConfigError, match=r"none of 5 .* mine-2: 1 iteration with a success rate; .*; and 2 more$"):
        backtest_runs(store, None)


def test_a_run_that_did_not_fall_has_no_table_of_zeros(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    put_run(store, "mine", "starpo", [0.8] * 12)
    said = CliRunner().invoke(app, ["backtest", "--store", store.url]).stdout
    assert "0 of 0" not in said
    assert said.splitlines()[-1] == "none fell, so no rule could be early; 15 rules never rang"


def test_leads_are_not_drawn_without_a_collapse(tmp_path) -> None:
    store = Store(str(tmp_path / "store"))
    put_run(store, "mine", "starpo", [0.8] * 12)
    done = ragen("backtest", "-o", "leads.svg", cwd=tmp_path, RAGEN_STORE=store.url)
    assert done.stdout.startswith("1 run; in 0 of them success halved")
    assert (done.returncode, "leads.svg is not drawn: " in done.stderr) == (1, True)
    assert not (tmp_path / "leads.svg").exists()
