from pathlib import Path
from typing import Any

import pytest
from prefect.states import Failed

from ragen.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, DataError, LearnerError, StoreError
from ragen.store import Store
from schemas.examples import example
from schemas.manifest import Stage
from tasks.compare import compare
from tasks.evaluate import evaluate
from tasks.reward import reward
from tasks.rollout import rollout
from tasks.stage import StageWork, is_io_failure
from tasks.update import update
from tasks.variance_filter import variance_filter
from tasks.warm_start import warm_start

STAGE = Stage(name="reward", version=1)


def work(folder: Path, **changes: Any) -> StageWork:
    defaults = {"stage": STAGE, "settings": {"a": 1}, "inputs": {"turns": "t" * 32}, "seed": 0}
    return StageWork(Store(str(folder)), **{**defaults, **changes})


def test_the_key_is_a_function_of_everything_that_decides_the_output(tmp_path: Path) -> None:
    same = work(tmp_path).key
    assert work(tmp_path / "elsewhere").key == same
    changes = [
        {"stage": Stage(name="reward", version=2)},
        {"stage": Stage(name="filter", version=1)},
        {"settings": {"a": 2}},
        {"inputs": {"turns": "u" * 32}},
        {"seed": 1},
    ]
    assert len({same, *(work(tmp_path, **change).key for change in changes)}) == len(changes) + 1


def test_stored_work_is_recognised(tmp_path: Path) -> None:
    done = work(tmp_path)
    assert not done.is_stored("metrics")
    done.put_table("metrics", example("metrics"))
    assert work(tmp_path).is_stored("metrics")
    assert not work(tmp_path).is_stored("metrics", "samples")
    assert not work(tmp_path, seed=1).is_stored("metrics")


def test_the_manifest_says_how_long_the_stage_took(tmp_path: Path) -> None:
    done = work(tmp_path)
    done.put_table("metrics", example("metrics"))
    manifest = done.store.manifest("metrics", done.key)
    assert manifest.provenance["seconds"] >= 0
    assert manifest.inputs == {"turns": "t" * 32}


@pytest.mark.parametrize("error", [StoreError("the store does not answer"), OSError("disk"), ConnectionError("reset")])
def test_what_the_outside_world_does_is_retried(error: Exception) -> None:
    assert is_io_failure(None, None, Failed(data=error))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("wrong setting"),
        DataError("bad data"),
        LearnerError("nan"),
        ArtifactMissingError("gone"),
        ArtifactDamagedError("edited"),
        KeyError("a fault of ours"),
    ],
)
def test_what_is_wrong_stays_wrong_and_is_not_retried(error: Exception) -> None:
    assert not is_io_failure(None, None, Failed(data=error))  # type: ignore[arg-type]


def test_stages_have_no_time_limit_of_prefects() -> None:
    """It would not end one that works in a thread, and Prefect warns of that for every cell of a sweep."""
    stages = [rollout, reward, variance_filter, update, evaluate, warm_start, compare]
    assert [stage.name for stage in stages if stage.timeout_seconds is not None] == []
