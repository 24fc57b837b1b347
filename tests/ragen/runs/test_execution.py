"""Stages carried out in this process: what is repeated, and what is not."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tenacity import Retrying

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, StoreError
from starpo.ragen.runs import execution
from starpo.ragen.runs.execution import NUM_ATTEMPTS, InProcess
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from tests.examples import example


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each pause between attempts, which nobody waits for."""
    seconds: list[float] = []
    monkeypatch.setattr(execution, "Retrying", partial(Retrying, sleep=seconds.append))
    return seconds


def failing(error: Exception, times: int) -> Work:
    """Work that fails so many times, and then stores example metrics."""
    left = [error] * times

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        if left:
            raise left.pop()
        yield Output("metrics", example("metrics"))

    return Work(Stage(name="diagnose", version=1), ("metrics",), do)


@pytest.mark.parametrize("error", [StoreError("the store does not answer"), OSError("disk")])
def test_external_failures_are_repeated(error: Exception, tmp_path: Path, pauses: list[float]) -> None:
    work = failing(error, NUM_ATTEMPTS - 1)
    assert InProcess(ModelPlacement()).carry_out(str(tmp_path), work, "000 diagnose") == work.keys
    assert Store(str(tmp_path)).has("metrics", work.key)
    assert pauses == [1, 2, 4]
    with pytest.raises(type(error), match=str(error)):
        InProcess(ModelPlacement()).carry_out(str(tmp_path / "other"), failing(error, NUM_ATTEMPTS), "000 diagnose")


@pytest.mark.parametrize(
    "error", [ConfigError("wrong"), ArtifactMissingError("gone"), ArtifactDamagedError("edited"), KeyError("a bug")]
)
def test_own_errors_are_not_repeated(error: Exception, tmp_path: Path, pauses: list[float]) -> None:
    with pytest.raises(type(error)):
        InProcess(ModelPlacement()).submit(str(tmp_path), failing(error, 1), "000 diagnose").result()
    assert pauses == []
