"""`starpo credit` beside estimators, on a real run: what they say is what the update used, and is computed once."""

import csv
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.api.credit import Budget, MeasuredCredit, measure_credit
from starpo.flows.api.credit_comparison import compare_estimators
from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.ragen.config.estimation import estimator_name
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.metrics.credit_comparison import HALVES, RANDOM
from starpo.ragen.store import Store
from tests.flows.documents import check
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

SETTINGS = {
    "checkpoint_every": 1, "diagnostics.probe_every": 0, "evaluation.every": 100, "update.advantage": "gae",
    "update.advantage_scale": "none", "update.should_whiten": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    """Store with a run of PPO, of two updates."""
    folder = tmp_path_factory.mktemp("credit") / "store"
    begun(folder)
    train_run(preset("smoke", SETTINGS), store=str(folder), run="critic")
    return folder


@pytest.fixture(scope="module")
def measured(folder: Path) -> MeasuredCredit:
    return measure_credit(Store(str(folder)), "critic", 1, budget=Budget(continuations=4))


def test_estimates_are_those_of_the_update(folder: Path, measured: MeasuredCredit) -> None:
    """The mean over a trajectory's tokens is the advantage that its update recorded."""
    store = Store(str(folder))
    compared = compare_estimators(store, "critic", 1, measured.credits, ["grpo", "gspo"])
    used = estimator_name(preset("smoke", SETTINGS).update)
    assert compared.methods[used] == ["run"]
    assert compared.methods["grpo advantage_scale=group"] == ["grpo", "gspo"]
    stages = store.runs.iterations("critic")[1]
    turns = store.read_table("turns", stages["rollout"]["turns"]).to_pylist()
    sizes = {(row["trajectory_id"], row["turn"]): len(row["response_ids"]) for row in turns}
    sums, tokens = defaultdict[str, float](float), defaultdict[str, int](int)
    for row in store.read_table("credit_estimates", compared.key).to_pylist():
        if row["estimator"] == used:
            size = sizes[row["trajectory_id"], row["turn"]]
            sums[row["trajectory_id"]] += size * row["estimate"]
            tokens[row["trajectory_id"]] += size
    samples = store.read_table("samples", stages["update"]["samples"]).to_pylist()
    assert {row["trajectory_id"] for row in samples} == set(sums)
    for row in samples:
        name = row["trajectory_id"]
        assert tokens[name] == row["num_tokens"]
        assert sums[name] / tokens[name] == pytest.approx(row["advantage"], rel=1e-4, abs=1e-5)


def test_estimates_are_computed_once(folder: Path, measured: MeasuredCredit, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(folder))
    first = compare_estimators(store, "critic", 1, measured.credits)
    monkeypatch.setattr(TorchLearner, "at_start", lambda *_: pytest.fail("they were computed again"))
    again = compare_estimators(store, "critic", 1, measured.credits)
    assert again == first
    names = [one.estimator for one in first.comparison.agreements]
    assert names[-2:] == [RANDOM, HALVES]
    assert {"turn_gae lambda_turn=0", "turn_gae", "reward", "gigpo gamma_turn=0.95"} < set(names)
    assert first.comparison.calibration is not None
    assert set(first.left_out) == {"istar", "opsd", "remax", "sdpo", "vineppo"}


def test_command_compares_and_writes(folder: Path, measured: MeasuredCredit, tmp_path: Path) -> None:
    command = ["credit", "critic", "--iteration", "1", "--continuations", "4", "--store", str(folder)]
    table, picture = tmp_path / "credit.csv", tmp_path / "credit.svg"
    done = CliRunner().invoke(app, [*command, "--output", str(table)])
    assert done.exit_code == 0, done.output
    assert "estimators beside the true advantages" in done.stdout
    assert {row["turns"] for row in csv.DictReader(table.open())} > {"all", "last"}
    facts = check("credit", CliRunner().invoke(app, [*command, "--json", "-o", str(picture)]).stdout)
    assert facts["comparison"]["num_turns"] == measured.credits.num_rows
    assert facts["not_compared"] == ""
    assert picture.read_text().startswith("<svg")
    alone = check("credit", CliRunner().invoke(app, [*command, "--json", "--with", "none"]).stdout)
    assert alone["comparison"] is None
    assert alone["turns"] == facts["turns"]
    refused = CliRunner().invoke(app, [*command, "--with", "none", "-o", str(picture)])
    assert "--output writes the comparison" in str(refused.exception or refused.output)


@pytest.mark.parametrize(
    ("methods", "message"),
    [(["grpoo"], "'grpoo' is neither a method nor a TOML file"), (["istar", "istar"], "two objectives are called")],
)
def test_unknown_method_is_refused(folder: Path, measured: MeasuredCredit, methods, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        compare_estimators(Store(str(folder)), "critic", 1, measured.credits, methods)
