import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from tests.examples import example

STAGE, INPUTS = Stage(name="reward", version=1), {"turns": "t" * 32}


def work(**changes: Any) -> Work:
    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        yield Output("metrics", example("metrics"), {"a": 1.0}, {"timings": {}}, False)

    defaults = {"stage": STAGE, "outputs": ("metrics",), "do": do, "settings": {"a": 1}, "inputs": INPUTS, "seed": 0}
    return Work(**{**defaults, **changes})


def test_key_depends_on_all_inputs() -> None:
    changes = [
        {"stage": Stage(name="reward", version=2)},
        {"stage": Stage(name="filter", version=1)},
        {"settings": {"a": 2}},
        {"inputs": {"turns": "u" * 32}},
        {"seed": 1},
        {"code": {"strategy": "starpo.ragen.learning.filter.strategies:top_fraction"}},
    ]
    assert work() == work(part="elsewhere")
    assert len({work(), *(work(**change) for change in changes)}) == len(changes) + 1


def test_work_done_once_with_provenance(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert not work().is_stored(store)
    assert work().carry_out(store) == {"metrics": work().key}
    assert work().is_stored(store)
    manifest = store.manifest("metrics", work().key)
    assert (manifest.stage, manifest.settings, manifest.inputs, manifest.seed) == (
        STAGE, {"a": 1}, INPUTS, 0
    )  # fmt: skip
    assert (manifest.headline, manifest.is_deterministic) == ({"a": 1.0}, False)
    assert manifest.provenance["seconds"] >= 0
    assert manifest.provenance["timings"] == {}

    def never(*_: object) -> Iterator[Output]:
        pytest.fail("it is stored")

    assert work(do=never).carry_out(store) == work().keys
    assert not work(seed=1).is_stored(store)
    assert not work(outputs=("metrics", "samples")).is_stored(store)


def test_stage_without_placement_closes_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[ModelPlacement] = []
    closed: list[ModelPlacement] = []
    monkeypatch.setattr(ModelPlacement, "close", lambda placement: closed.append(placement))

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        given.append(placement)
        assert closed == []
        yield Output("metrics", example("metrics"))

    with ModelPlacement() as shared:
        for seed in (1, 2):
            work(do=do, seed=seed).carry_out(Store(str(tmp_path)), shared)
        assert given == [shared, shared]
        work(do=do, seed=3).carry_out(Store(str(tmp_path)))
    assert given[2] is not shared
    assert closed == [given[2], shared]


def test_runs_record_stage_and_part() -> None:
    assert (work().name, work(part="sokoban").name) == ("reward", "reward:sokoban")


def test_code_exiting_process_is_stage_error(tmp_path: Path) -> None:
    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        sys.exit(0)
        yield

    work = Work(Stage(name="update", version=1), ("metrics",), do, code={"advantage": "mine:sign"})
    with pytest.raises(
        StarPOError, match=r"stage update: sys.exit\(0\) was called, by code that it uses \(mine:sign\)"
    ):
        work.carry_out(Store(str(tmp_path)))
