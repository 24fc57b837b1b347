"""Checkpoints derived by learners that do not train."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.device import Device
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, DerivationError
from starpo.ragen.runs import derive, loaded_learner
from starpo.ragen.runs.derive import Step, restore
from starpo.ragen.runs.execution import InProcess
from starpo.ragen.runs.loaded_learner import LoadedLearner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.store.keeping import recipe as recipes
from starpo.ragen.store.keeping.recipe import failing_once, find_recipe, how_made
from starpo.tasks.loop.record import RunRecorder
from tests.ragen.runs.adapted import FIRST, H200, NUMBERS, Adapted, key_of, write_adapted


@pytest.fixture(autouse=True)
def learners(monkeypatch: pytest.MonkeyPatch) -> list[Adapted]:
    """The learners that were made."""
    made: list[Adapted] = []

    def make(*_: object) -> Adapted:
        made.append(Adapted())
        return made[-1]

    monkeypatch.setattr(loaded_learner, "load", lambda *_: make)
    return made


@pytest.fixture
def loaded() -> Iterator[LoadedLearner]:
    with ModelPlacement() as placement:
        yield placement.learner


def files(store: Store) -> list[Path]:
    return sorted(path for path in Path(store.url).rglob("*") if path.is_file())


def test_other_learner_finds_weights_below_adapters(
    adapted_store: Store, loaded: LoadedLearner, learners: list[Adapted]
) -> None:
    steps: list[Step] = []
    with loaded.derive(adapted_store, find_recipe(adapted_store, key_of(3)), steps.append) as derived:
        assert [step.proof for step in steps] == ["checkpoint"] * 3
        assert derived.learner is learners[1]
    assert len(learners) == 2


def test_players_get_policy_without_storing(adapted_store: Store, loaded: LoadedLearner) -> None:
    before = files(adapted_store)
    folder = Path(loaded.policy_folder(adapted_store, key_of(3)))
    assert (folder / "adapter_model.safetensors").read_text() == key_of(3)
    assert (folder / "model.safetensors").read_text() == "weights"
    assert [loaded.policies.find(key_of(number)) is not None for number in NUMBERS] == [False, True, True]
    assert files(adapted_store) == before


def test_long_derivation_says_what_is_left(
    adapted_store: Store, loaded: LoadedLearner, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derive, "_TELL_EVERY_S", 0.0)
    loaded.policy_folder(adapted_store, key_of(3))
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(", about")[0] for text in texts[1:]] == [
        "1 of 3 updates are repeated",
        "2 of 3 updates are repeated",
    ]


def test_next_derivation_continues_from_learner(
    adapted_store: Store, loaded: LoadedLearner, learners: list[Adapted], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded.policy_folder(adapted_store, key_of(1))
    loaded.policies.clear()
    shutil.rmtree(Path(adapted_store.url, "checkpoint", FIRST, "model.safetensors").parent)
    with pytest.raises(ArtifactMissingError, match=FIRST):
        find_recipe(adapted_store, key_of(2))
    assert [made.key for made in find_recipe(adapted_store, key_of(2), held=key_of(1)).updates] == [key_of(2)]


def test_underivable_checkpoint_tried_once(
    adapted_store: Store, loaded: LoadedLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many who need later checkpoints do not each walk back to the one that is kept."""
    walked: list[str] = []
    monkeypatch.setattr(recipes, "how_made", lambda store, key: walked.append(key) or how_made(store, key))
    Path(adapted_store.url, "checkpoint", FIRST, "model.safetensors").write_text("changed")
    with failing_once():
        for number in (2, 3):
            with pytest.raises(ArtifactDamagedError, match=f"{key_of(2)} is derived from checkpoint {FIRST}"):
                loaded.policy_folder(adapted_store, key_of(number))
    assert walked == [key_of(2), key_of(1), key_of(3)]
    with pytest.raises(ArtifactDamagedError, match=key_of(3)):  # only there
        loaded.policy_folder(adapted_store, key_of(3))


def test_lost_policy_folder_is_rewritten(adapted_store: Store, loaded: LoadedLearner, learners: list[Adapted]) -> None:
    loaded.policy_folder(adapted_store, key_of(1))
    loaded.policies.clear()
    folder = Path(loaded.policy_folder(adapted_store, key_of(1)))
    assert (folder / "adapter_model.safetensors").read_text() == key_of(1)
    assert len(learners) == 1


def test_checkpoint_for_other_processes_dropped_finally(adapted_store: Store, loaded: LoadedLearner) -> None:
    before = files(adapted_store)
    with loaded.restored(adapted_store, [key_of(2), "f" * 32]):  # the other cannot be derived
        assert adapted_store.has("checkpoint", key_of(2))
    assert files(adapted_store) == before


def drift(folder: Path, key: str) -> None:
    write_adapted(folder, key)
    (folder / "adapter_model.safetensors").write_text("other")


@pytest.mark.parametrize(
    ("is_deterministic", "here", "reason"),
    [
        (False, Device(), "the learner is not deterministic"),
        (True, H200, r"it was made on a CPU, and here is an NVIDIA H200 \(driver 580"),
    ],
)
def test_without_proof_nothing_stays(
    adapted_store: Store,
    loaded: LoadedLearner,
    monkeypatch: pytest.MonkeyPatch,
    is_deterministic: bool,
    here: Device,
    reason: str,
) -> None:
    monkeypatch.setattr("tests.ragen.runs.adapted.write_adapted", drift)
    monkeypatch.setattr(Adapted, "is_deterministic", is_deterministic)
    monkeypatch.setattr(Device, "here", lambda: here)
    recipe = find_recipe(adapted_store, key_of(2))
    message = rf"(?s)cannot be proved.*{reason}.*A machine like .* torch .*{FIRST} is kept.*--output"
    with pytest.raises(DerivationError, match=message):
        loaded.policy_folder(adapted_store, key_of(2))
    assert loaded.policies.find(key_of(1)) is None
    with loaded.derive(adapted_store, recipe, must_be_proved=False) as derived:
        assert derived.proof == "none"
        with pytest.raises(DerivationError, match="cannot be proved"):
            restore(adapted_store, derived)
    assert derived.learner.checkpoint_key is None
    assert loaded.policies.find(key_of(2)) is None


def test_different_result_refused_leaving_nothing(
    adapted_store: Store, loaded: LoadedLearner, learners: list[Adapted], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(adapted_store)
    monkeypatch.setattr("tests.ragen.runs.adapted.write_adapted", drift)
    message = r"(?s)iteration 0, repeated, gave another result: its checkpoint had digest .*then: .*here: .*same type"
    with pytest.raises(DerivationError, match=message):
        loaded.policy_folder(adapted_store, key_of(2))
    assert learners[0].checkpoint_key is None
    assert loaded.policies.find(key_of(1)) is None
    assert files(adapted_store) == before


def test_kept_number_is_brought_back(adapted_store: Store) -> None:
    config = preset("smoke", {"checkpoint_every": 2, "iterations": 5})
    with ModelPlacement() as placement:
        recorder = RunRecorder(adapted_store.url, "run", config, InProcess(placement))
        recorder.retain([FIRST, key_of(1)])
        assert not adapted_store.has("checkpoint", key_of(1))
        recorder.retain([FIRST, key_of(1), key_of(1)])
    assert adapted_store.has("checkpoint", key_of(1))
