"""The live pages of the configured store, served in the background beside Prefect's server.

Nothing depends on them: where they cannot be served, their log says why, and runs go on.
"""

import sys
import time
from pathlib import Path
from urllib.parse import quote

from starpo.flows.background import Process

_WAIT_S = 20.0


def process(state_dir: str) -> Process:
    """Return the process of this state folder."""
    return Process("view", Path(state_dir))


def begin(state_dir: str, store: str) -> None:
    """Start it unless it is running, without waiting for it.

    Args:
        state_dir: Folder of its pid file, its log and its address.
        store: Address of the store.

    Raises:
        ServerError: If its log cannot be written.
    """
    view = process(state_dir)
    if view.running() is None:
        _address(state_dir).unlink(missing_ok=True)
        arguments = ["view", "--no-browser", "--address-file", str(_address(state_dir).absolute())]
        view.start(sys.executable, "-m", "starpo.flows.cli", *arguments, env={"STARPO_STORE": store})


def url(state_dir: str, store: str, run: str = "") -> str:
    """Return the address of a run's page, or of the list of runs; '' if the pages of this store are not served."""
    view, deadline = process(state_dir), time.monotonic() + _WAIT_S
    while view.running() is not None and time.monotonic() < deadline:
        lines = _address(state_dir).read_text(encoding="utf-8").splitlines() if _address(state_dir).exists() else []
        if len(lines) == 2:
            return lines[0] + (f"run/{quote(run, safe='')}" if run else "") if lines[1] == store else ""
        time.sleep(0.1)
    return ""


def _address(state_dir: str) -> Path:
    return Path(state_dir, "view.address")
