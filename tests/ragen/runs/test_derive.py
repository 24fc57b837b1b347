"""Checkpoints derived by learners that do not train."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.runs import derive as deriving
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.recipe import find_recipe
from tests.ragen.runs import adapted
from tests.ragen.runs.adapted import NUMBERS, Adapted, key_of


@contextmanager
def derived(store: Store, **options: Any) -> Iterator[deriving.Derivation]:
    learners: dict[float, Adapted] = {}

    def learner_for(config: UpdateConfig) -> Any:
        return learners.setdefault(config.entropy_coefficient, Adapted())

    with deriving.derive(store, find_recipe(store, key_of(3)), learner_for, **options) as found:
        assert len(learners) == 2
        yield found


def test_another_learner_finds_the_weights_under_the_adapters_of_the_one_before(adapted_store: Store) -> None:
    with derived(adapted_store) as found:
        assert [step.proof for step in found.steps] == ["checkpoint"] * 3


def test_what_lies_between_is_not_kept_on_the_disk(adapted_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    seen: list[list[str]] = []

    def write(folder: Path, key: str) -> None:
        folders.append(folder)
        write_as_before(folder, key)

    def look(_: deriving.Step) -> None:
        seen.append([path.name for path in folders[-1].parent.iterdir()])

    write_as_before = adapted.write_adapted
    monkeypatch.setattr(adapted, "write_adapted", write)
    with derived(adapted_store, on_step=look) as found:
        assert Path(found.folder).is_dir()
    assert seen == [[key_of(number)] for number in NUMBERS]
