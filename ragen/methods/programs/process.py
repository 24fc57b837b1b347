"""A program that plays one episode, as a process group of its own."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starpo.ragen.methods.programs.settings import ProgramSettings


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    status: str
    detail: str
    seconds: float
    output: str


class RunningProgram:
    """A program that runs."""

    def __init__(self, settings: ProgramSettings, task: Mapping[str, Any], base_url: str, key: str) -> None:
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="program-"))
        text = json.dumps(dict(task))
        (self._folder / "task").write_text(text)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": key,
            "RAGEN_TASK": text,
        }
        self._started = time.monotonic()
        self._output = (self._folder / "output").open("wb")
        self._process = subprocess.Popen(
            settings.command,
            cwd=self._folder,
            env=environment,
            stdin=(self._folder / "task").open("rb"),
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def poll(self) -> Ended | None:
        """Return how it ended; None if it runs."""
        seconds = time.monotonic() - self._started
        code = self._process.poll()
        output = (self._folder / "output").read_bytes().decode("utf-8", "replace")[-20_000:]
        if code is None:
            return Ended("hung", "time", seconds, output) if seconds > self._settings.time_limit_s else None
        if code:
            return Ended("died", f"exit code {code}", seconds, output)
        return Ended("done", "", seconds, output)

    def kill(self) -> None:
        """Kill it with its children."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)
