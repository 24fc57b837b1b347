"""`starpo objectives` on real runs: measured once, printed and output as JSON; what cannot be is named."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.api.objectives import compare_objectives
from starpo.flows.cli import app
from starpo.flows.presets import METHODS, preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.learners.measuring import initial_gradient
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.update import stored_trajectories, update_context
from starpo.ragen.store import Store
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

CRITIC = {"update.advantage": "gae", "update.advantage_scale": "none"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    """Store with the runs 'plain' (GRPO) and 'critic' (PPO), of two updates each."""
    folder = tmp_path_factory.mktemp("objectives") / "store"
    begun(folder)
    plain = {"checkpoint_every": 1, "diagnostics.probe_every": 0, "evaluation.every": 100}
    train_run(preset("smoke", plain), store=str(folder), run="plain")
    train_run(preset("smoke", {**plain, **CRITIC}), store=str(folder), run="critic")
    return folder


def test_norms_equal_learners_gradients(folder: Path) -> None:
    store = Store(str(folder))
    lab = compare_objectives(store, "plain", ["gigpo", "dr_grpo"], 1)
    assert list(lab.comparison.values) == ["run", "gigpo", "dr_grpo"]
    config = preset("smoke", {"update.advantage": "grpo"}).update
    stages = store.runs.iterations("plain")
    inputs = stages[1]["rollout"] | stages[1]["reward"] | stages[1]["variance_filter"]
    checkpoint, first = stages[0]["update"]["checkpoint"], stages[0]["warm_start"]["checkpoint"]
    trajectories, kept_share = stored_trajectories(store, config.needs, {"checkpoint": checkpoint, **inputs})
    settings = {"iteration": 1, "num_iterations": None, "temperature": 1.0, "max_response_tokens": 64}
    with ModelPlacement() as placement:
        learner = placement.learner.at(store, checkpoint, config, first)
        gradient = initial_gradient(learner, trajectories, update_context(settings, 0, kept_share))
    assert lab.comparison.values["run"]["norm"] == pytest.approx(float(gradient.norm()), rel=1e-4)
    assert lab.comparison.cosines["run"]["run"] == 1.0


def test_objectives_computed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(folder))
    first = compare_objectives(store, "plain", ["rloo", "grpo"], 0)
    monkeypatch.setattr(TorchLearner, "at_start", lambda *_: pytest.fail("it was computed again"))
    again = compare_objectives(store, "plain", ["grpo", "rloo"], 0)
    assert list(again.comparison.values) == ["run", "grpo", "rloo"]
    assert again.comparison.cosines["grpo"] == first.comparison.cosines["grpo"]


def test_critic_methods_measured_with_a_critic(folder: Path) -> None:
    store = Store(str(folder))
    without = compare_objectives(store, "plain", ["all"])
    left_out = ["bi_level_gae", "hiper", "istar", "opsd", "ppo", "remax", "sdpo", "trico", "turn_ppo", "vineppo"]
    assert list(without.left_out) == left_out
    assert "'istar' needs a process reward model, and the checkpoint has none" in without.left_out["istar"]
    assert "'gae' needs a critic, and the checkpoint has none" in without.left_out["ppo"]
    assert "needs a greedy rollout of each group" in without.left_out["remax"]
    assert len(without.comparison.values) == 1 + len(METHODS.names()) - len(left_out)
    assert without.kept["dapo"] == ["filter.strategy = none"]
    assert list(compare_objectives(store, "critic", ["trico", "grpo"], 0).comparison.values) == ["grpo"]
    assert list(compare_objectives(store, "critic", ["trico", "grpo"], 1).comparison.values) == ["run", "trico", "grpo"]


def test_comparison_printed_and_as_json(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = ["grpo"]\n[update]\nloss_on = "answer"')
    arguments = ["objectives", "plain", "--store", str(folder), "--with", f"gspo,ppo,{tmp_path / 'mine.toml'}"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "plain, iteration 1" in result.stdout
    assert "left out: ppo: 'gae' needs a critic" in " ".join(result.stdout.split())
    facts = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert facts["iteration"] == 1
    assert set(facts["objectives"]) == {"run", "gspo", "mine"}
    assert facts["cosines"]["gspo"]["gspo"] == 1.0


@pytest.mark.parametrize(
    ("run", "methods", "iteration", "message"),
    [
        ("plain", ["grpoo"], None, "'grpoo' is neither a method nor a TOML file"),
        ("plain", ["grpo", "grpo"], None, "two objectives are called 'grpo'"),
        ("plain", ["grpo"], 7, "no update at iteration 7; it has 2, from 0 to 1"),
        ("empty", ["grpo"], None, "'empty' has no update"),
        ("critic", ["ppo"], 0, "no objective can be measured: run: 'gae' needs a critic"),
    ],
)
def test_unmeasurable_objective_is_refused(folder: Path, run, methods, iteration, message) -> None:
    store = Store(str(folder))
    store.runs.create("empty", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        compare_objectives(store, run, methods, iteration)
