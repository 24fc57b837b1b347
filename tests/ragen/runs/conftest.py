"""A store of dropped checkpoints, for the tests of derivation and of verification."""

from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.learner import UpdateResult
from starpo.ragen.runs import derive as deriving
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example, put_folder
from tests.ragen.runs.adapted import DATA, FIRST, NUMBERS, key_of, write_adapted


@pytest.fixture
def adapted_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Store with three updates of adapters, all dropped; settings change after the second."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(deriving, "run_update", lambda *_: UpdateResult(example("samples"), {}, {}))
    store = Store(str(tmp_path / "store"))
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "model.safetensors").write_text("weights")
    made: dict[str, Any] = {"settings": {}, "inputs": {}, "seed": 0}
    put_folder(
        store,
        "checkpoint",
        str(tmp_path / "first"),
        Facts(key=FIRST, stage=Stage(name="warm_start", version=1), **made),
    )
    for kind in ("turns", "rewards", "selection"):
        store.put_table(kind, example(kind), Facts(key=DATA, stage=Stage(name=kind, version=1), **made))
    for number in NUMBERS:
        write_adapted(tmp_path / key_of(number), key_of(number))
        settings = UpdateConfig(entropy_coefficient=0.1 if number > 2 else 0.0).effective() | {"iteration": number - 1}
        inputs = dict.fromkeys(("turns", "rewards", "selection"), DATA) | {"checkpoint": key_of(number - 1)}
        facts = Facts(
            key=key_of(number), stage=Stage(name="update", version=1), settings=settings, inputs=inputs, seed=0
        )
        put_folder(store, "checkpoint", str(tmp_path / key_of(number)), facts)
        store.drop("checkpoint", key_of(number))
    return store
