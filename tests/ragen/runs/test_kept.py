"""Which checkpoints an update writes, and what happens if it is repeated."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import DerivationError, StoreError
from starpo.ragen.learning.learners.learner import UpdateResult
from starpo.ragen.runs import loaded_learner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Work
from starpo.ragen.sizing.architecture import known_architecture
from starpo.ragen.sizing.storage import checkpoint_interval
from starpo.ragen.store import Store
from starpo.tasks.update import update
from tests.examples import example
from tests.ragen.runs import adapted
from tests.ragen.runs.adapted import DATA, FIRST, Adapted


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Adapted:
    made = Adapted()
    monkeypatch.setattr(loaded_learner, "load", lambda *_: lambda *_: made)
    monkeypatch.setattr(
        "starpo.tasks.update.run_update", lambda *_: UpdateResult(example("samples"), {"update/num_steps": 1.0}, {})
    )
    return made


@pytest.fixture
def placement() -> Iterator[ModelPlacement]:
    with ModelPlacement() as opened:
        yield opened


def work(*, is_kept: bool) -> Work:
    config = preset("smoke", {"update.kl_coefficient": 0.0})
    return update(config, 0, FIRST, FIRST, dict.fromkeys(("turns", "rewards", "selection"), DATA), is_kept=is_kept)


def test_keeping_is_not_in_key() -> None:
    assert work(is_kept=True).key == work(is_kept=False).key


@pytest.mark.parametrize(
    ("is_kept", "is_repeatable", "pool", "is_written"),
    [(True, True, "", True), (False, True, "", False), (False, False, "", True), (False, True, "ray", True)],
)
def test_derivable_checkpoint_written_only_if_kept(
    adapted_store: Store,
    learner: Adapted,
    placement: ModelPlacement,
    monkeypatch: pytest.MonkeyPatch,
    is_kept: bool,
    is_repeatable: bool,
    pool: str,
    is_written: bool,
) -> None:
    if pool:
        monkeypatch.setenv("STARPO_POOL", pool)
    learner.is_deterministic = is_repeatable
    key = work(is_kept=is_kept).carry_out(adapted_store, placement)["checkpoint"]
    assert adapted_store.has("checkpoint", key) is is_written
    assert adapted_store.was_made("checkpoint", key)
    assert (placement.learner.policies.find(key) is not None) is not is_written
    assert adapted_store.lasting_manifest("checkpoint", key).is_deterministic is is_repeatable


def test_killed_between_outputs_is_repeated(
    adapted_store: Store, learner: Adapted, placement: ModelPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = work(is_kept=False)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            made.carry_out(adapted_store, placement)
    file = Path(adapted_store.url, "checkpoint", made.key, "dropped.json")
    before = file.stat().st_mtime_ns
    assert not made.is_stored(adapted_store)
    made.carry_out(adapted_store, placement)
    assert made.is_stored(adapted_store)
    assert file.stat().st_mtime_ns == before


def test_different_result_refused_not_played(
    adapted_store: Store, learner: Adapted, placement: ModelPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = work(is_kept=False)
    made.carry_out(adapted_store, placement)
    (Path(adapted_store.url, "samples", made.key, "manifest.json")).unlink()
    placement.learner.close()
    write = adapted.write_adapted

    def drift(folder: Path, key: str) -> None:
        write(folder, key)
        (folder / "adapter_model.safetensors").write_text("other")

    monkeypatch.setattr(adapted, "write_adapted", drift)
    with pytest.raises(DerivationError, match="was made again"):
        made.carry_out(adapted_store, placement)
    assert placement.learner.policies.find(made.key) is None
    assert learner.checkpoint_key is None


def test_full_disk_repeats_update(
    adapted_store: Store, learner: Adapted, placement: ModelPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = adapted.write_adapted

    def fill(folder: Path, key: str) -> None:
        write(folder, key)
        raise OSError(errno.ENOSPC, "No space left on device")

    made = work(is_kept=True)
    with monkeypatch.context() as patch:
        patch.setattr(adapted, "write_adapted", fill)
        with pytest.raises(StoreError, match=r"(?s)cannot write .*No space left on device.*free some space"):
            made.carry_out(adapted_store, placement)
    assert not adapted_store.was_made("checkpoint", made.key)
    assert list(Path(adapted_store.url, "tmp").iterdir()) == []
    assert adapted_store.has("checkpoint", made.carry_out(adapted_store, placement)["checkpoint"])


def test_default_depends_on_checkpoint_size() -> None:
    large = {"policy.hidden_size": 512, "policy.num_layers": 12, "policy.intermediate_size": 2048}
    for overrides, interval in (({}, 1), (large, 10), ({**large, "update.lora": {"rank": 4}}, 1)):
        config = preset("sokoban", overrides)
        assert checkpoint_interval(config, known_architecture(config)) == interval
        assert checkpoint_interval(config, None) == 1
    assert checkpoint_interval(preset("sokoban", {"checkpoint_every": 3}), None) == 3
