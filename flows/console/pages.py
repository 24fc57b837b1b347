"""Pages and pictures that commands write."""

from collections.abc import Sequence
from pathlib import Path

from starpo.flows.console.terminal import Console, plain
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.store import Store


def write_report(store: Store, run: str, output: Path | None, wanted: Sequence[int] = ()) -> Path:
    """Write the report of a run and return where; `wanted` are iterations whose trajectories must be in it."""
    path = output or Path(Runtime.current().state_dir) / "reports" / f"{run}.html"
    with Console(stderr=True).status(f"reading {run}") as status:
        data = gather(store, run, wanted=wanted, on_batch=lambda what: status.update(plain(f"reading {run}: {what}")))
        return write_page(path, render_report(data))


def write_page(path: Path, text: str) -> Path:
    """Write a file and return where it is.

    Raises:
        ConfigError: If that cannot be.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); name another file with --output") from error
    return path.resolve()
