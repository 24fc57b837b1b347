"""`starpo diagnose` on real runs: missing probes are computed once and stored; runs without probes are judged too."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.api.diagnosis import diagnose_run
from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.gradients import measured
from starpo.ragen.store import Store
from starpo.tasks.loop.verify import verify_run
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

ROWS = "reasoning/first_turn"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    """Store with the runs 'plain', probed during training, and 'mute', which does not reason."""
    folder = tmp_path_factory.mktemp("diagnosis") / "store"
    settings = {
        "checkpoint_every": 2, "diagnostics.probe_every": 2, "diagnostics.gradients_every": 2, "iterations": 3,
        "update.kl_coefficient": 0.01, "update.entropy_coefficient": 0.01,
    }  # fmt: skip
    train_run(preset("smoke", settings), store=begun(folder), run="plain")
    mute = {"agent.should_think": False, "iterations": 1}
    train_run(preset("smoke", mute), store=str(folder), run="mute")
    return folder


def test_run_has_its_configured_probes(finished: Path) -> None:
    stages = Store(str(finished)).runs.iterations("plain")
    assert [n for n, of in stages.items() if "probe" in of] == [0, 2]
    diagnosis = diagnose_run(Store(str(finished)), "plain")
    assert (diagnosis.num_computed, diagnosis.not_computed) == (0, {})
    assert [point.iteration for point in diagnosis.points] == [0, 2]
    bound = diagnosis.series[f"{ROWS}/token/mutual_information_bound"]
    assert all(0 < point.dependence < bound[point.iteration] for point in diagnosis.points)
    assert all(point.diversity > 0 for point in diagnosis.points)


def test_missing_probes_computed_from_derived_checkpoints(folder: Path) -> None:
    store = Store(str(folder))
    first = store.runs.iterations("plain")[0]["update"]["checkpoint"]
    assert not store.has("checkpoint", first)
    diagnosis = diagnose_run(store, "plain", every=1)
    assert (diagnosis.num_computed, [point.iteration for point in diagnosis.points]) == (1, [0, 1, 2])
    again = diagnose_run(store, "plain", every=1)
    assert (again.num_computed, again.points) == (0, diagnosis.points)


def test_gradients_measured_by_reward_std_bucket(folder: Path) -> None:
    store = Store(str(folder))
    stages = store.runs.iterations("plain")
    assert [n for n, of in stages.items() if "gradient_probe" in of] == [0, 2]
    diagnosis = diagnose_run(store, "plain", every=1, with_gradients=True)
    tables = measured(diagnosis.series)
    assert list(tables) == [0, 1, 2]
    for iteration, buckets in tables.items():
        selection = store.read_table("selection", stages[iteration]["variance_filter"]["selection"])
        assert sum(bucket["num_groups"] for bucket in buckets.values()) == selection.num_rows
        assert all(bucket["entropy_norm"] > 0 for bucket in buckets.values())
    assert all(bucket["kl_norm"] < 1e-6 for bucket in tables[0].values())  # the policy is still its reference
    assert all(bucket["kl_norm"] > 1e-5 for bucket in tables[2].values())
    assert diagnose_run(store, "plain", every=1, with_gradients=True).num_computed == 0
    again = verify_run(store, "plain", stages=["gradient_probe"])
    assert [f.verdict for f in again.findings if f.stage == "gradient_probe" and f.check == "metrics"] == ["same"] * 2
    result = CliRunner().invoke(app, ["diagnose", "plain", "--store", str(folder), "--every", "1", "--gradients"])
    assert "gradients at iteration 1" in result.output


def test_metrics_judged_without_reasoning(folder: Path) -> None:
    diagnosis = diagnose_run(Store(str(folder)), "mute")
    assert diagnosis.series[f"{ROWS}/num_rows"] == {0: 0.0}
    assert diagnosis.points == []
    assert diagnosis.verdict.status == "healthy"
    result = CliRunner().invoke(app, ["diagnose", "mute", "--store", str(folder), "-o", str(folder / "plane.svg")])
    assert "no probe found reasoning under two different prompts" in result.output
    assert isinstance(result.exception, ConfigError)
    assert "is not drawn" in str(result.exception)


def test_foreign_trajectories_are_judged(folder: Path, tmp_path: Path) -> None:
    store = Store(str(folder))
    turns = store.local_folder("turns", store.runs.iterations("plain")[0]["rollout"]["turns"])
    shutil.copy(next(Path(turns).glob("*.parquet")), tmp_path / "turns.parquet")
    arguments = ["import", "foreign", str(tmp_path / "turns.parquet"), "--store", str(folder)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    diagnosis = diagnose_run(store, "foreign")
    assert "rollout/entropy" in diagnosis.series
    assert list(diagnosis.not_computed) == [
        "it holds no checkpoint, so its reasoning cannot be scored: it was not trained here"
    ]


def test_diagnosis_printed_drawn_and_as_json(folder: Path, tmp_path: Path) -> None:
    arguments = ["diagnose", "plain", "--store", str(folder), "--every", "1"]
    result = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "plane.svg")])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("plain: healthy: no signal holds")
    assert "computed and stored for this: 1 stage\n" in result.stdout
    assert (tmp_path / "plane.svg").read_text().startswith("<svg")
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (facts["status"], facts["num_computed"], len(facts["probes"])) == ("healthy", 0, 3)
    numbers = facts["reasoning"][f"{ROWS}/num_rows"]
    assert list(numbers) == ["0", "1", "2"]
    assert all(0 < number <= 16 for number in numbers.values())


def test_run_without_rollout_is_refused(folder: Path) -> None:
    store = Store(str(folder))
    store.runs.create("empty", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    with pytest.raises(ConfigError, match="'empty' has no rollout"):
        diagnose_run(store, "empty")
