"""Deriving checkpoints that a real run dropped."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from starpo.flows.cli.checkpoint import print_checkpoint, print_checkpoints
from starpo.flows.presets import preset
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError, DerivationError, PolicyError
from starpo.ragen.core.identity import code_identity
from starpo.ragen.core.registry import ADVANTAGES
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.learner import UpdateContext, UpdateResult
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.runs.training_states import training_states
from starpo.ragen.store import Store
from starpo.tasks.warm_start import warm_start
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

SETTINGS: dict[str, Any] = {
    "iterations": 6,
    "online_k": 3,
    "checkpoint_every": 4,
    "update.optimiser.decay": "constant",
    "evaluation.every": 2,
}


def run(folder: Path, name: str, **settings: Any) -> Store:
    train_run(preset("smoke", {**SETTINGS, **settings}), store=str(folder), run=name)
    return Store(str(folder))


def keys(store: Store, name: str = "sparse") -> list[str]:
    records = store.runs.iterations(name)
    return [records[0]["warm_start"]["checkpoint"], *(records[i]["update"]["checkpoint"] for i in range(6))]


def kept(store: Store, name: str = "sparse") -> list[int]:
    return [number for number, key in enumerate(keys(store, name)) if store.has("checkpoint", key)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    folder = tmp_path_factory.mktemp("store")
    begun(folder)
    run(folder, "sparse")
    return folder


@pytest.fixture
def store(finished: Path, tmp_path: Path) -> Store:
    """Copy of the finished run's store, for a test to modify."""
    shutil.copytree(finished, tmp_path / "store")
    return Store(str(tmp_path / "store"))


def facts(capsys: pytest.CaptureFixture[str], store: Store, number: int, output: Path | None = None) -> dict[str, Any]:
    capsys.readouterr()
    print_checkpoint(store, "sparse", number, output, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_run_keeps_checkpoints_and_manifests(finished: Path) -> None:
    store = Store(str(finished))
    assert kept(store) == [0, 4, 6]
    for number in (1, 2, 3, 5):
        manifest = store.dropped("checkpoint", keys(store)[number])
        assert manifest is not None
        assert manifest.is_intact


def test_running_again_needs_no_dropped_checkpoint(store: Store) -> None:
    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in Path(store.url).glob("*/*/*") if "runs" not in path.parts}

    before = files()
    run(Path(store.url), "sparse")
    assert files() == before


def test_dropped_checkpoint_is_derived_and_restored(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    key = keys(store)[3]
    original = store.dropped("checkpoint", key)
    derived = facts(capsys, store, 3)
    assert (derived["how"], derived["from_iteration"], derived["proof"]) == ("derived", 0, "checkpoint")
    assert [update["proof"] for update in derived["updates"]] == ["checkpoint"] * 3
    assert store.manifest("checkpoint", key).content_digest == original.content_digest == derived["digest"]
    assert store.manifest("checkpoint", key).manifest_digest == original.manifest_digest
    assert facts(capsys, store, 3)["how"] == "kept"


def test_transformers_loads_kept_and_derived_checkpoints(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from starpo.ragen.agents.policy.load import load_tokenizer

    text = "<think>go up</think><answer>Up || Down</answer>"
    for number in (4, 5):
        folder = facts(capsys, store, number, tmp_path / str(number))["folder"]
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        assert tokenizer.chat_template
        assert torch.isfinite(model(tokenizer(text, return_tensors="pt").input_ids).logits).all()
        assert tokenizer(text).input_ids == load_tokenizer(folder)(text).input_ids
        assert tokenizer.get_vocab() == load_tokenizer(folder).get_vocab()
        assert {"optimiser.safetensors", "trainer.json"} <= {path.name for path in Path(folder).iterdir()}


def test_output_option_leaves_store_unchanged(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in Path(store.url).rglob("*"))
    derived = facts(capsys, store, 5, tmp_path / "out")
    assert (derived["how"], derived["from_iteration"]) == ("derived", 4)
    assert sorted(path for path in Path(store.url).rglob("*")) == before
    assert Path(derived["folder"], "model.safetensors").is_file()
    with pytest.raises(ConfigError, match="new or empty"):
        print_checkpoint(store, "sparse", 5, tmp_path / "out", as_json=True)


def test_output_appears_only_when_complete(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(Path, "rename", lambda *_: None)
        facts(capsys, store, 4, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    assert Path(facts(capsys, store, 4, tmp_path / "out")["folder"], "model.safetensors").is_file()


def test_list_shows_kept_and_derivable_checkpoints(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    turns = store.runs.iteration("sparse", 4)["rollout"]["turns"]
    shutil.rmtree(Path(store.url, "turns", turns))
    capsys.readouterr()
    print_checkpoints(store, "sparse", as_json=True)
    rows = json.loads(capsys.readouterr().out)
    states = [(row["number"], row["state"], row["is_available"]) for row in rows]
    assert states == [
        (0, "kept", True), (1, "dropped", True), (2, "dropped", True), (3, "dropped", True), (4, "kept", True),
        (5, "dropped", False), (6, "kept", True),
    ]  # fmt: skip
    assert f"turns/{turns} of iteration 4 is missing" in rows[5]["obstacle"]
    assert all(row["size_bytes"] > 100_000 for row in rows)
    print_checkpoints(store, "sparse", as_json=False)
    assert "can be derived" in capsys.readouterr().out


def test_an_iteration_outside_the_run(store: Store) -> None:
    with pytest.raises(ConfigError, match="has checkpoints 0 to 6; there is no 37"):
        print_checkpoint(store, "sparse", 37, None, as_json=True)


def test_damaged_nearest_checkpoint_is_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    nearest = Path(store.url, "checkpoint", keys(store)[4])
    content = bytearray((nearest / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (nearest / "model.safetensors").write_bytes(content)
    with pytest.raises(ArtifactDamagedError, match=r"(?s)is derived from .*damaged.*sha256 differs"):
        print_checkpoint(store, "sparse", 5, None, as_json=True)
    shutil.rmtree(nearest)
    derived = facts(capsys, store, 5)
    assert derived["from_iteration"] == 0
    proofs = [update["proof"] for update in derived["updates"]]
    assert proofs == ["checkpoint"] * 3 + ["samples", "checkpoint"]  # the manifest of checkpoint 4 is lost


def test_exported_policy_brings_training_states(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = training_states(store, keys(store)[4])
    assert states.num_unknown == 0
    assert len(states.digests) > len(training_states(store, keys(store)[0]).digests) > 0
    exported = facts(capsys, store, 4, tmp_path / "out")
    assert (exported["num_initial_states"], exported["training_unknown"]) == (len(states.digests), None)
    policy = PretrainedPolicy(name_or_path=str(tmp_path / "out"))
    config = preset("smoke").model_copy(update={"policy": policy})
    begun = warm_start(config).carry_out(store)["checkpoint"]
    assert training_states(store, begun) == states
    (tmp_path / "out" / "initial_states.json").write_text('{"not": "a list"}')
    with pytest.raises(PolicyError, match=r"initial_states.json' is damaged"):
        warm_start(config.model_copy(update={"fresh": "again"})).carry_out(store)


class Jittery(TorchLearner):
    """Learner whose updates give a different result every time."""

    def update(self, trajectories: list[Trajectory], context: UpdateContext, *_: object) -> UpdateResult:
        result = super().update(trajectories, context)
        with torch.no_grad():
            next(self._loaded().policy.parameters()).add_(1e-3 * torch.rand(()))
        return result


class Honest(Jittery):
    """Such a learner that declares itself non-deterministic."""

    def __init__(self, config: UpdateConfig, num_threads: int | None = None) -> None:
        super().__init__(config, num_threads)
        self.is_deterministic = False


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda kind: monkeypatch.setattr("starpo.ragen.runs.loaded_learner.load", lambda *_: kind)


def test_different_result_refused_naming_update(store: Store, learner: Any, tmp_path: Path) -> None:
    learner(Jittery)
    with pytest.raises(DerivationError, match=r"(?s)iteration 4, repeated, gave another result.*then:.*here:"):
        print_checkpoint(store, "sparse", 5, tmp_path / "out", as_json=True)
    assert not (tmp_path / "out").exists()
    assert kept(store) == [0, 4, 6]


def test_edited_estimator_named_before_and_after(store: Store, mine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("smoke", SETTINGS).update
    registered = ADVANTAGES[config.advantage]
    module, _, name = registered.partition(":")
    mine(
        f"from dataclasses import replace\n\nfrom {module} import {name} as original\n\n\ndef {name}(inputs):\n"
        "    made = original(inputs)\n    return replace(made, advantages_BT=-made.advantages_BT)\n"
    )
    monkeypatch.setitem(ADVANTAGES, config.advantage, f"mine_code:{name}")
    was = store.dropped("checkpoint", keys(store)[5])
    now = code_identity(f"mine_code:{name}")
    commit = re.escape(was.provenance["code"] or "its commit was not recorded")
    with pytest.raises(
        DerivationError, match=rf"(?s)advantage was '{was.code['advantage']}', is '{now}'\. Check out .*{commit}"
    ) as caught:
        print_checkpoint(store, "sparse", 5, None, as_json=True)
    assert "loss was" not in str(caught.value)
    assert kept(store) == [0, 4, 6]


def test_nondeterministic_learner_gives_no_proof(
    store: Store, learner: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner(Honest)
    with pytest.raises(DerivationError, match=r"(?s)cannot be proved.*--output"):
        print_checkpoint(store, "sparse", 5, None, as_json=True)
    assert kept(store) == [0, 4, 6]
    derived = facts(capsys, store, 5, tmp_path / "out")
    assert derived["proof"] == "none"
    assert derived["digest"] != derived["original_digest"]
    print_checkpoint(store, "sparse", 5, tmp_path / "again", as_json=False)
    assert "not proved" in capsys.readouterr().out


def test_run_derives_checkpoint_another_dropped(store: Store) -> None:
    """The same training with other evaluations shares every update, but most checkpoints were dropped."""
    turns = {path.name for path in Path(store.url, "turns").iterdir()}
    run(Path(store.url), "other", **{"evaluation.temperature": 0.7, "evaluation.every": 1})
    assert keys(store, "other") == keys(store, "sparse")
    assert {path.name for path in Path(store.url, "turns").iterdir()} == turns
    records = store.runs.iterations("other")
    assert all("evaluate:sokoban" in records[iteration] for iteration in range(7))
    assert kept(store) == [0, 4, 6]  # those in between are derived for their players alone
