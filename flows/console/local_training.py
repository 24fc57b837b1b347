"""Training in this process, without a server, with the same progress display as for a run on a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from starpo.flows.console.follow import RunFailedError, follow_run
from starpo.flows.memory_check import check_memory
from starpo.flows.outcome import Outcome
from starpo.flows.terminal import Console, say
from starpo.flows.training_run import carry_out_run
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.execution import InProcess
from starpo.ragen.store import Store


def train_here(store: Store, run: str, preset: str, config: StarPOConfig, console: Console) -> str:
    """Begin a run, or continue the one of this name, and train to its end in this thread.

    Args:
        store: The store.
        run: The run's name.
        preset: Label of the settings.
        config: The settings.
        console: Console for the progress.

    Returns:
        The run's name; after a rollback, the name of the fork that it ended as.

    Raises:
        StarPOError: If it cannot start, or fails. Its state in the store names the error.
        KeyboardInterrupt: On Ctrl-C; its state is then 'cancelled', and the same settings continue it.
    """
    check_memory(config)
    check_ready(config, preset, should_download=True)
    with _progress(store, run, console):
        return carry_out_run(store.address, run, preset, config, InProcess())


@contextmanager
def _progress(store: Store, run: str, console: Console) -> Iterator[None]:
    """Show the progress of a run while the block works on it. The block's error is not repeated."""
    over, outcome = Event(), Outcome("completed", "")

    def follow() -> None:
        try:
            follow_run(store, run, console, lambda: outcome if over.is_set() else None)
        except RunFailedError:
            pass
        except StarPOError as error:
            say(console, f"the progress of run {run} is not shown any more: {error}")

    thread = Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
