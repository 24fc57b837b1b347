"""Pages, pictures and tables that commands write to files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from starpo.flows.console.progress import status_line
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.core.outputs import whole_file
from starpo.ragen.store import Store

if TYPE_CHECKING:
    from starpo.ragen.evidence.report.audited import Audited

_FORMATS = {
    ".svg": "a picture in SVG",
    ".pdf": "one in PDF",
    ".png": "one in PNG",
    ".html": "a page in HTML",
    ".csv": "a table in CSV",
    ".tex": "one in LaTeX",
}


def write_report(
    store: Store, run: str, output: Path | None, wanted: Sequence[int] = (), *, should_audit: bool = True
) -> Path:
    """Write the report of a run, with its audits, and return its path.

    Args:
        store: Where the run is stored.
        run: The run's name.
        output: The file. None for the default location.
        wanted: Iterations whose trajectories must be embedded.
        should_audit: Run the audits and show their findings.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no rollout at a wanted iteration, or the file cannot be written.
    """
    from starpo.ragen.evidence.report.data import gather
    from starpo.ragen.evidence.report.page import render_report

    path = output or Path(Runtime.current().state_dir) / "reports" / f"{run}.html"
    with status_line(f"reading {run}") as tell:
        data = gather(store, run, wanted=wanted, on_batch=lambda what: tell(f"reading {run}: {what}"))
        tell(f"reading {run}: audits")
        page = render_report(data, _audited(store, run) if should_audit else None)
        return write_page(path, page, f"`starpo report {run} --output FILE` writes it elsewhere")


def _audited(store: Store, run: str) -> "Audited | None":
    from starpo.ragen.evidence.report.audited import audited

    try:
        return audited(store, run)
    except StoreError:  # a damaged record, which the report names
        return None


def check_output(path: Path | None, *suffixes: str) -> None:
    """Check an output file before any work is done for it.

    Raises:
        ConfigError: If it has the wrong suffix, or cannot be written.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        held = " or ".join(_FORMATS[suffix] for suffix in suffixes)
        raise ConfigError(f"'{path}' would hold {held}: give a name that ends in {' or '.join(suffixes)}")
    parents = Path(os.path.realpath(path)).parents
    nearest = next(place for place in parents if os.access(place, os.F_OK))
    if path.is_dir():
        fault = "it is a folder"
    elif not nearest.is_dir():
        fault = f"{nearest} is not a folder"
    elif not os.access(nearest, os.W_OK):
        fault = f"you may not write to {nearest}"
    else:
        return
    raise ConfigError(f"{path} cannot be written ({fault}); name another file with --output")


def write_page(path: Path, content: str | bytes, remedy: str = "name another file with --output") -> Path:
    """Write a file and return its absolute path.

    Args:
        path: The file; its folder is created, and an existing file is replaced.
        content: Its content, text as UTF-8.
        remedy: What to do if it cannot be written.

    Raises:
        ConfigError: If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as unfinished:
            unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); {remedy}") from error
    return path.resolve()
