import asyncio
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.states import Failed, exception_to_failed_state

from starpo.flows.presets import preset
from starpo.flows.stage_task import is_io_failure, stage_task
from starpo.ragen.core.errors import StoreError
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks.warm_start import warm_start


@pytest.mark.parametrize(("error", "is_repeated"), [(StoreError("no answer"), True), (KeyError(), False)])
def test_external_failures_are_retried(error: Exception, is_repeated: bool) -> None:
    assert is_io_failure(None, None, Failed(data=error)) is is_repeated  # type: ignore[arg-type]


def test_stage_task_named_without_prefect_timeout() -> None:
    """Such a limit cannot end a task that runs in a thread, and Prefect warns of that for every cell of a sweep."""
    task = stage_task(warm_start(preset("smoke")), "a {title}", tags={"gpu"})
    assert (task.name, task.timeout_seconds, task.tags) == ("warm_start", None, {"gpu"})
    assert str(task.task_run_name).format() == "a {title}"


def test_secrets_in_errors_hidden_from_prefect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Prefect stores the text of the exception in its database and logs its traceback."""
    secret, address = "canary-Abc123", "https://me:hunter2x@host/x"
    monkeypatch.setenv("WANDB_KEY", secret)

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise RuntimeError(f"no login with {secret} at {address}") from error
        yield

    work = Work(Stage(name="update", version=1), ("metrics",), do)
    with pytest.raises(RuntimeError) as raised:
        stage_task(work, "title").fn(str(tmp_path), work, None)
    shown = "".join(traceback.format_exception(raised.value))
    message = repr(asyncio.run(exception_to_failed_state(raised.value)).message)
    for text in (shown, message):
        assert "no login with *** at https://***@host/x" in text
        assert secret not in text
        assert "hunter2x" not in text
    assert str(raised.value.__cause__) == "'***'"
