"""`starpo credit` on real runs: measured once, resumed, verified, forged; derived checkpoints; what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from starpo.flows.api.credit import Budget, Choice, measure_credit, verify_credit
from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError, NoVerdictError, StarPOError
from starpo.ragen.runs import continuations, kept_shards
from starpo.ragen.runs.loaded_learner import LoadedLearner
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from tests.flows.documents import check
from tests.integration.forging import forge
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

FEW = Budget(continuations=12)
ALL = Choice(("all",))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    """Store with the run 'plain' of two updates, whose checkpoint between them was dropped."""
    folder = tmp_path_factory.mktemp("credit") / "store"
    begun(folder)
    settings = {"checkpoint_every": 5, "diagnostics.probe_every": 0, "evaluation.every": 100}
    train_run(preset("smoke", settings), store=str(folder), run="plain")
    return folder


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def test_measured_once_with_a_derived_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(folder))
    checkpoint = store.runs.iterations("plain")[0]["update"]["checkpoint"]
    assert store.dropped("checkpoint", checkpoint) is not None
    measured = measure_credit(store, "plain", 1, ALL, FEW)
    states = {row["state"]: row["num_continuations"] for row in rows_of(measured.credits)}
    assert min(states.values()) >= 8
    assert sum(states.values()) == measured.summary.num_continuations <= 12 * len(states)
    rewards = store.read_table("rewards", store.runs.iterations("plain")[1]["reward"]["rewards"])
    totals = {(row["trajectory_id"], row["turn"]): row["total"] for row in rewards.to_pylist()}
    assert {(row["trajectory_id"], row["turn"]): row["reward"] for row in rows_of(measured.credits)} == totals
    assert all(row["solver_before"] is not None for row in rows_of(measured.credits))
    monkeypatch.setattr(continuations, "play_shards", lambda *_, **__: pytest.fail("it was played again"))
    assert measure_credit(store, "plain", 1, ALL, FEW).credits.equals(measured.credits)


def test_values_agree_with_the_rollout(folder: Path) -> None:
    """From the initial states of all groups, the rollout and the continuations are samples of the same returns."""
    store = Store(str(folder))
    measured = measure_credit(store, "plain", 0, ALL, Budget(continuations=48))
    value, error = measured.summary.value
    returns = store.read_table("rewards", store.runs.iterations("plain")[0]["reward"]["rewards"]).to_pylist()
    each = {row["trajectory_id"]: (row["group_id"], row["trajectory_return"]) for row in returns}
    groups = {g: [r for of, r in each.values() if of == g] for g, _ in each.values()}
    played_error = np.sqrt(sum(np.var(one, ddof=1) / len(one) for one in groups.values())) / len(groups)
    assert abs(value - measured.summary.played_return) <= 3 * np.hypot(error, played_error)


def test_same_whatever_the_shards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure_credit(Store(str(folder)), "plain", 0, budget=FEW)
    monkeypatch.setattr(continuations, "SHARD_CONTINUATIONS", 16)
    assert verify_credit(Store(str(folder)), "plain", 0, budget=FEW).outcome == "verified"
    assert whole.summary.num_turns == whole.credits.num_rows


def test_interrupted_measurement_resumes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, ended = Store(str(folder)), []
    monkeypatch.setattr(continuations, "SHARD_CONTINUATIONS", 16)
    monkeypatch.setattr(kept_shards, "KEEP_AFTER_S", 0.0)

    def stop(done: int, total: int) -> None:
        ended.append((done, total))
        if len(ended) == 3:
            raise KeyboardInterrupt

    budget = Budget(continuations=6)
    with pytest.raises(KeyboardInterrupt):
        measure_credit(store, "plain", 0, budget=budget, on_progress=stop)
    begun_with: list[int] = []
    measured = measure_credit(store, "plain", 0, budget=budget, on_progress=lambda done, _: begun_with.append(done))
    assert begun_with[0] >= 3
    assert verify_credit(store, "plain", 0, budget=budget).outcome == "verified"
    assert measured.summary.num_continuations == 6 * measured.summary.num_states


@pytest.mark.parametrize("is_first", [True, False])
def test_forged_value_is_named(folder: Path, is_first: bool) -> None:
    store = Store(str(folder))
    measured = measure_credit(store, "plain", 1, ALL, FEW)
    assert verify_credit(store, "plain", 1, ALL, FEW).outcome == "verified"
    refined = store.manifest("credits", measured.key)
    key = refined.inputs["credits"] if is_first else measured.key

    def change(rows: list[dict[str, Any]]) -> None:
        state = rows[-1]["state"]
        for row in rows:
            if row["state"] == state:
                row["num_tokens"] += 1

    forge(folder / "credits" / key, change)
    findings = verify_credit(Store(str(folder)), "plain", 1, ALL, FEW).findings
    fault = next(finding for finding in findings if finding.verdict.is_fault)
    assert (fault.stage, fault.check, fault.verdict) == ("credit", "credits", Verdict.DIFFERENT)
    assert fault.artifact == f"credits/{key}"
    assert "num_tokens" in fault.detail


def test_budgets_decide_how_much_is_played(folder: Path) -> None:
    store = Store(str(folder))
    first = measure_credit(store, "plain", 0, budget=Budget(continuations=8)).summary
    more = measure_credit(store, "plain", 0, budget=Budget(tokens=2 * first.num_tokens))
    assert first.num_tokens < more.summary.num_tokens <= 2.4 * first.num_tokens
    none_left = measure_credit(store, "plain", 0, budget=Budget(minutes=1e-9))
    assert none_left.summary.num_tokens == first.num_tokens
    assert "the first round took the whole budget" in none_left.note
    longer = measure_credit(store, "plain", 0, budget=Budget(minutes=0.2))
    assert longer.summary.num_tokens > first.num_tokens


def test_credit_printed_and_queried(folder: Path) -> None:
    options = ["plain", "--store", str(folder), "--continuations", "8", "--sample", "3"]
    printed = CliRunner().invoke(app, ["credit", *options, "--top", "2"])
    assert printed.exit_code == 0, printed.output
    assert re.search(r"before the first turn: value -?\d+\.\d+ \+- ", printed.output)
    document = check("credit", CliRunner().invoke(app, ["credit", *options, "--json"]).stdout)
    advantages = [abs(turn["advantage"]) for turn in document["turns"]]
    assert advantages == sorted(advantages, reverse=True)
    query = f"select count(*) as turns from credits where artifact = '{document['artifact']}'"
    (row,) = json.loads(CliRunner().invoke(app, ["sql", "plain", query, "--store", str(folder), "--json"]).stdout)
    assert row["turns"] == document["summary"]["num_turns"]
    verified = CliRunner().invoke(app, ["credit", *options, "--verify"])
    assert verified.exit_code == 0, verified.output
    again = CliRunner().invoke(app, ["credit", *options, "--verify", "--json"])
    assert check("credit --verify", again.stdout)["findings"][0]["verdict"] == "same"
    missing = CliRunner().invoke(app, ["credit", *options[:3], "--sample", "2", "--verify"])
    assert isinstance(missing.exception, NoVerdictError)


def test_checkpoint_is_derived_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its continuations and its estimators."""
    derived: list[str] = []
    derive = LoadedLearner._derived
    monkeypatch.setattr(LoadedLearner, "_derived", lambda *a: derived.append(a[-1]) or derive(*a))
    options = ["plain", "--iteration", "1", "--continuations", "2", "--with", "grpo", "--json"]
    printed = CliRunner().invoke(app, ["credit", *options, "--store", str(folder)])
    assert json.loads(printed.stdout)["comparison"], printed.output
    assert derived == [Store(str(folder)).runs.iterations("plain")[0]["update"]["checkpoint"]]


@pytest.mark.parametrize(
    ("choice", "budget", "message"),
    [
        (Choice(("g9999",)), FEW, "has no group g9999 in iteration 0; its 4 groups are g0000 to g0003"),
        (Choice(sample=0), FEW, "expected at least 1"),
        (Choice(("all",), 5), Budget(tokens=50), r"50 tokens are too few to tell anything: 8 continuations of each of"),
    ],
)
def test_impossible_choices_are_refused(folder: Path, choice: Choice, budget: Budget, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        measure_credit(Store(str(folder)), "plain", 0, choice, budget)


def test_lost_checkpoint_is_refused(folder: Path) -> None:
    store = Store(str(folder))
    shutil.rmtree(folder / "checkpoint" / store.runs.iterations("plain")[0]["warm_start"]["checkpoint"])
    with pytest.raises(StarPOError, match="cannot be derived"):
        measure_credit(store, "plain", 1, ALL, Budget(continuations=9))
