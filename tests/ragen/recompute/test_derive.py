"""Checkpoints derived by learners that only write down what they are asked."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.recompute import derive as deriving
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.recipe import find_recipe
from starpo.schemas.examples import example
from starpo.schemas.manifest import Stage

FIRST, DATA = "0" * 32, "d" * 32
NUMBERS = (1, 2, 3)


class Adapted:
    """Trains adapters on the weights of the first checkpoint; loads nothing where it already is."""

    is_deterministic = True

    def __init__(self) -> None:
        self.key = ""

    def load(self, folder: str, checkpoint_key: str, reference_folder: str | None) -> None:
        if checkpoint_key != self.key:
            assert Path(folder, "model.safetensors").exists(), f"{folder} has no weights"

    def save(self, folder: str, checkpoint_key: str) -> None:
        self.key = checkpoint_key
        write_adapted(Path(folder), checkpoint_key)


def write_adapted(folder: Path, key: str) -> None:
    folder.mkdir()
    (folder / "base.json").write_text(json.dumps({"checkpoint": FIRST}))
    (folder / "adapter_model.safetensors").write_text(key)


def key_of(number: int) -> str:
    return str(number) * 32


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three updates of adapters, all dropped; settings change after the second."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(deriving, "run_update", lambda *_: None)
    store = Store(str(tmp_path / "store"))
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "model.safetensors").write_text("weights")
    made: dict[str, Any] = {"settings": {}, "inputs": {}, "seed": 0}
    store.put_folder(
        "checkpoint", str(tmp_path / "first"), key=FIRST, stage=Stage(name="warm_start", version=1), **made
    )
    for kind in ("turns", "rewards", "selection"):
        store.put_table(kind, example(kind), key=DATA, stage=Stage(name=kind, version=1), **made)
    for number in NUMBERS:
        write_adapted(tmp_path / key_of(number), key_of(number))
        settings = UpdateConfig(entropy_coefficient=0.1 if number > 2 else 0.0).effective() | {"iteration": number - 1}
        inputs = dict.fromkeys(("turns", "rewards", "selection"), DATA) | {"checkpoint": key_of(number - 1)}
        store.put_folder(
            "checkpoint", str(tmp_path / key_of(number)), key=key_of(number), stage=Stage(name="update", version=1),
            settings=settings, inputs=inputs, seed=0,
        )  # fmt: skip
        store.drop("checkpoint", key_of(number))
    return store


@contextmanager
def derived(store: Store, **options: Any) -> Iterator[deriving.Derivation]:
    learners: dict[float, Adapted] = {}

    def learner_for(config: UpdateConfig) -> Any:
        return learners.setdefault(config.entropy_coefficient, Adapted())

    with deriving.derive(store, find_recipe(store, key_of(3)), learner_for, **options) as found:
        assert len(learners) == 2
        yield found


def test_another_learner_finds_the_weights_under_the_adapters_of_the_one_before(store: Store) -> None:
    with derived(store) as found:
        assert [step.proof for step in found.steps] == ["checkpoint"] * 3


def test_what_lies_between_is_not_kept_on_the_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    seen: list[list[str]] = []

    def write(folder: Path, key: str) -> None:
        folders.append(folder)
        write_as_before(folder, key)

    def look(_: deriving.Step) -> None:
        seen.append([path.name for path in folders[-1].parent.iterdir()])

    write_as_before = write_adapted
    monkeypatch.setitem(globals(), "write_adapted", write)
    with derived(store, on_step=look) as found:
        assert Path(found.folder).is_dir()
    assert seen == [[key_of(number)] for number in NUMBERS]
