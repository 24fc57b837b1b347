"""A run in half precision is recorded as such, and verified to the bit by the machine that made it."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.runs.verify.verdict import Verdict
from tests.integration.forging import AFTER_START, RUN, artifact, claim, manifest_of, verify
from tests.integration.training import train_run

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("precision") / "store"
    train_run(preset("smoke", {"precision": "bfloat16", "iterations": 1}), store=str(folder), run=RUN)
    return folder


def test_bfloat16_run_is_verified(folder: Path) -> None:
    assert json.loads((folder / "runs" / RUN / "run.json").read_text())["config"]["precision"] == "bfloat16"
    played, learned = (manifest_of(artifact(folder, 0, *of)) for of in (("rollout", "turns"), ("update", "checkpoint")))
    assert played.settings["rollout"]["torch"]["dtype"] == learned.settings["dtype"] == "bfloat16"
    assert learned.headline["update/old_behaviour_gap_mean"] > 1e-4, "engine and learner round differently"
    assert verify(folder, **AFTER_START).exit_code == 0


def test_float16_run_is_verified(tmp_path: Path) -> None:
    dtypes = {"update.dtype": "float16", "rollout.torch.dtype": "float16"}
    train_run(preset("smoke", {**dtypes, "iterations": 1}), store=str(tmp_path / "store"), run=RUN)
    learned = manifest_of(artifact(tmp_path / "store", 0, "update", "checkpoint"))
    assert learned.settings["dtype"] == "float16"
    assert 1e-5 < learned.headline["update/old_behaviour_gap_mean"] < 0.003
    assert verify(tmp_path / "store", **AFTER_START).exit_code == 0


def test_other_instructions_are_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor of the same name, as virtual machines have them, whose arithmetic differs, is no fault of the run."""
    monkeypatch.setattr(MicroBatchRunner, "_precision", lambda self: nullcontext())
    honest, elsewhere = verify(folder, stages=["update"]), artifact(folder, 0, "update", "checkpoint")
    claim(elsewhere, "hardware", "instructions", "avx2")
    [finding] = [one for one in verify(folder, stages=["update"]).findings if one.check == "checkpoint"]
    assert (honest.exit_code, finding.verdict) == (1, Verdict.NOT_SHOWN)
    assert "it was made with instructions avx2 (here " in finding.detail
