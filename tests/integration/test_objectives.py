"""`ragen objectives` on real runs: measured once, printed, drawn and output as JSON; what cannot be is named."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.console.listing import evaluation_curve
from starpo.flows.fork import plan_fork
from starpo.flows.objective_forks import Gain, fork_gains, predictions
from starpo.flows.objectives import compare_objectives
from starpo.flows.presets import METHODS, method, preset
from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.learners.stored_update import stored_trajectories, update_context
from starpo.ragen.placement import learner_at
from starpo.ragen.store import Store

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

CRITIC = {"update.advantage": "gae", "update.advantage_scale": "none"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Path:
    """Store with the runs 'plain' (GRPO) and 'critic' (PPO), of two updates each."""
    folder = tmp_path_factory.mktemp("objectives") / "store"
    plain = {"checkpoint_every": 1, "diagnostics.probe_every": 0, "evaluation.every": 2}
    starpo(preset("smoke", plain), preset="smoke", store=str(folder), run="plain")
    starpo(preset("smoke", {**plain, **CRITIC}), preset="smoke", store=str(folder), run="critic")
    return folder


def test_norms_are_those_of_the_learners_gradients(folder: Path) -> None:
    store = Store(str(folder))
    lab = compare_objectives(store, "plain", ["gigpo", "dr_grpo"], [1])
    assert list(lab.found[1].values) == ["run", "gigpo", "dr_grpo"]
    config = preset("smoke", {"update.advantage": "grpo"}).update
    stages = store.runs.iterations("plain")
    inputs = stages[1]["rollout"] | stages[1]["reward"] | stages[1]["variance_filter"]
    checkpoint, first = stages[0]["update"]["checkpoint"], stages[0]["warm_start"]["checkpoint"]
    trajectories, kept_share = stored_trajectories(store, config, {"checkpoint": checkpoint, **inputs})
    settings = {"iteration": 1, "num_iterations": None, "temperature": 1.0, "max_response_tokens": 64}
    learner = learner_at(store, checkpoint, config, first)
    gradient = learner.gradient(trajectories, update_context(settings, 0, kept_share))
    assert lab.found[1].values["run"]["norm"] == pytest.approx(float(gradient.norm()), rel=1e-4)
    assert lab.found[1].cosines["run"]["run"] == 1.0
    assert sum(share or 0.0 for share in lab.found[1].by_turn("gigpo", "share")) == pytest.approx(1.0, rel=1e-3)
    assert lab.found[1].values["run"]["think/num_tokens"] > 0


def test_it_is_computed_once(folder: Path) -> None:
    store = Store(str(folder))
    first = compare_objectives(store, "plain", ["rloo", "grpo"], [0, 1])
    assert (first.num_computed, list(first.found)) == (2, [0, 1])
    again = compare_objectives(store, "plain", ["grpo", "rloo"], [0, 1])
    assert again.num_computed == 0
    assert list(again.found[0].values) == ["run", "grpo", "rloo"]
    assert again.found[1].cosines["grpo"] == first.found[1].cosines["grpo"]
    assert compare_objectives(store, "plain", ["grpo", "rloo"], [1], {"update.gamma": 0.9}).num_computed == 1


def test_what_needs_a_critic_is_measured_where_there_is_one(folder: Path) -> None:
    store = Store(str(folder))
    without = compare_objectives(store, "plain", ["all"])
    assert list(without.left_out) == ["bi_level_gae", "hiper", "istar", "ppo", "remax", "trico", "turn_ppo"]
    assert "'istar' needs a process reward model, and the checkpoint has none" in without.left_out["istar"]
    assert "'gae' needs a critic, and the checkpoint has none" in without.left_out["ppo"]
    assert "needs a greedy rollout of each group" in without.left_out["remax"]
    assert len(without.found[1].values) == 1 + len(METHODS.names()) - 7
    assert without.kept["dapo"] == ["filter.strategy = none"]
    with_critic = compare_objectives(store, "critic", ["trico", "grpo"], [0, 1])
    assert list(with_critic.found[0].values) == ["grpo"]
    assert list(with_critic.found[1].values) == ["run", "trico", "grpo"]
    assert with_critic.found[1].values["trico"]["think/num_tokens"] == 0


def test_it_is_said_drawn_and_told_to_machines(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = ["grpo"]\n[update]\nloss_on = "answer"')
    wanted = f"gspo,ppo,{tmp_path / 'mine.toml'}"
    arguments = ["objectives", "plain", "--store", str(folder), "--iterations", "0,1", "--with", wanted]
    said = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "page.html")])
    assert said.exit_code == 0, said.output
    assert "plain, iteration 1" in said.stdout
    assert "left out: ppo: 'gae' needs a critic" in " ".join(said.stdout.split())
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 2
    assert not re.search(r'(src|href)="(?!#)', page.replace('xlink:href="#', "").replace("http://www.w3.org", ""))
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (list(facts["iterations"]), facts["num_computed"]) == (["0", "1"], 0)
    assert set(facts["iterations"]["1"]["objectives"]) == {"run", "gspo", "mine"}
    assert facts["iterations"]["1"]["objectives"]["mine"]["think/num_tokens"] == 0


def test_scores_stand_beside_what_forks_gained(folder: Path) -> None:
    """Three objectives from checkpoint 1: the run's own and those of two forks, evaluated one update later."""
    store, overrides = Store(str(folder)), {"arpo": method("arpo"), "brpo": method("brpo")}
    for name, changes in overrides.items():
        fork = plan_fork(store, "plain", 1, changes)
        starpo(fork.config, preset="custom", store=str(folder), run=name)
    lab = compare_objectives(store, "plain", ["arpo", "brpo", "opo"], [1])
    gains = fork_gains(store, lab, 1, 1)
    assert [(gain.objective, gain.fork, gain.updates) for gain in gains] == [
        ("run", "plain", 1), ("arpo", "arpo", 1), ("brpo", "brpo", 1)
    ]  # fmt: skip
    curve = {point["iteration"]: point["success"] for point in evaluation_curve(store, store.runs.get("arpo"))}
    assert gains[1].gain == curve[2] - curve[0]
    assert fork_gains(store, lab, 1, 2) == []
    with_gains = [Gain(name, name, 0.0, gain, 1) for name, gain in (("run", 0.1), ("arpo", 0.2), ("brpo", 0.3))]
    found = predictions(lab, 1, with_gains)["cosine with the run's"]
    assert (found.num, -1 <= found.low <= found.rho <= found.high <= 1) == (3, True)
    arguments = ["objectives", "plain", "--store", str(folder), "--with", "arpo,brpo,opo", "--forks", "1"]
    said = CliRunner().invoke(app, arguments)
    assert "forks of plain from checkpoint 1" in said.stdout
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [gain["fork"] for gain in facts["forks"]["1"]["gains"]] == ["plain", "arpo", "brpo"]
    few = CliRunner().invoke(app, [*arguments, "--iterations", "0"]).stdout
    assert "a rank correlation needs 3" in " ".join(few.split())


@pytest.mark.parametrize(
    ("run", "methods", "iterations", "message"),
    [
        ("plain", ["grpoo"], None, "'grpoo' is neither a method nor a TOML file"),
        ("plain", ["grpo", "grpo"], None, "two objectives are called 'grpo'"),
        ("plain", ["grpo"], [7], "no update at iteration 7; it has 2, from 0 to 1"),
        ("empty", ["grpo"], None, "'empty' has no update"),
        ("critic", ["ppo"], [0], "no objective can be measured: run: 'gae' needs a critic"),
    ],
)
def test_what_cannot_be_measured_is_refused(folder: Path, run, methods, iterations, message) -> None:
    store = Store(str(folder))
    store.runs.create("empty", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        compare_objectives(store, run, methods, iterations)


def test_iterations_are_numbers(folder: Path) -> None:
    said = CliRunner().invoke(app, ["objectives", "plain", "--store", str(folder), "--iterations", "a"])
    assert "expected comma-separated numbers" in str(said.exception)
