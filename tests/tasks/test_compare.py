"""Comparison of two updates: a stored comparison stays valid after its checkpoints are dropped."""

from pathlib import Path
from typing import Any

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from starpo.tasks.compare import STAGE, Side, compare
from tests.examples import example, put_folder

FIRST, BASE, BRANCH = "0" * 32, "1" * 32, "2" * 32


def test_comparison_key_survives_dropped_weights(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "weights").write_text("w")
    store, made = Store(str(tmp_path / "store")), {"inputs": {}, "seed": 0}
    for key in (FIRST, BASE, BRANCH):
        stage = Stage(name="update", version=1)
        put_folder(store, "checkpoint", str(tmp_path / "files"), Facts(key=key, stage=stage, settings={}, **made))

    def compared() -> Work:
        base, branch = (Side(UpdateConfig(), {}, FIRST, {"checkpoint": key}) for key in (BASE, BRANCH))
        return compare(store, UpdateContext(0, 1, 0, 1.0, 8), base, branch, FIRST)

    with_weights = compared()
    store.drop("checkpoint", BRANCH)
    without = compared()
    has_weights: dict[str, Any] = {work.key: work.settings["has_weights"] for work in (with_weights, without)}
    assert list(has_weights.values()) == [True, False]
    store.put_table("metrics", example("metrics"), Facts(key=with_weights.key, stage=STAGE, settings={}, **made))
    assert compared() == with_weights
