"""Logs of Inspect, `.eval` or `.json`, read by Inspect's own reader in the interpreter that has it.

    FILE -> `inspect_process` in another process -> JSON lines -> pieces, a sample of an epoch each -> `inspect_sample`

inspect-ai needs an fsspec older than that of the object store here, so that it usually has an environment of its own.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import DataError, MissingPackageError
from starpo.ragen.evidence.exchange import inspect_process
from starpo.ragen.evidence.exchange.inspect_sample import InspectSample
from starpo.ragen.evidence.exchange.lines import Piece, stream_lines

_ADVICE = (
    "reading logs of Inspect needs inspect-ai: install it in an environment of its own "
    "(python -m venv inspect && inspect/bin/pip install inspect-ai) and set STARPO_INSPECT_PYTHON to its interpreter"
)


def inspect_samples(file: Path) -> Iterator[Piece]:
    """Read the samples of a log, one at a time; those that its evaluation planned and did not reach are faults.

    Raises:
        MissingPackageError: If no interpreter has inspect-ai.
        DataError: If the file is no log, is of a newer version, or has no samples.
    """
    if file.suffix not in (".eval", ".json"):
        raise DataError(f"{file}: is no log of Inspect, expected a name that ends in .eval or .json")
    command = [inspect_python(), "-I", inspect_process.__file__, str(file.resolve())]
    with tempfile.TemporaryFile() as errors:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(command, cwd=tempfile.gettempdir(), **pipes) as process:
            try:
                assert process.stdout is not None
                yield from _samples(file, stream_lines(process.stdout, file.name))
                if process.wait():
                    raise DataError(f"{file}: {command[0]} cannot read it ({_last_line(errors)})")
            finally:
                process.kill()


def inspect_python() -> str:
    """Return the interpreter that has inspect-ai: the configured one, this one, or that of the command `inspect`.

    Raises:
        MissingPackageError: If there is none.
    """
    configured = Runtime.current().inspect_python
    if configured is not None:
        if not Path(configured).is_file():
            raise MissingPackageError(f"there is no '{configured}' (STARPO_INSPECT_PYTHON); {_ADVICE}")
        return configured
    if find_spec("inspect_ai") is not None:
        return sys.executable
    command = shutil.which("inspect")
    python = Path(command).resolve().with_name("python") if command else None
    if python is None or not python.is_file():
        raise MissingPackageError(_ADVICE)
    return str(python)


def _samples(file: Path, lines: Iterator[Piece]) -> Iterator[Piece]:
    """Turn the lines of the other process into pieces; the first is about the log."""
    first = next(lines, None)
    if first is None:
        return
    about = first.value or {"fault": first.fault}
    if "fault" in about:
        raise DataError(f"{file}: is no log of Inspect that can be read here: {about['fault']}")
    num_samples = 0
    for line in lines:
        num_samples += 1
        value = line.value or {"fault": line.fault}
        place = f"{file.name}:{value['id']}/{value['epoch']}" if "id" in value else line.place
        fault = value.get("fault", "")
        sample = None if fault else InspectSample(value["sample"], about["log"])
        yield replace(line, place=place, value=sample, fault=fault)
    if not num_samples:
        status = about["log"]["status"]
        raise DataError(f"{file}: has no samples; the status of its evaluation is '{status}'")


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read()[-10_000:].decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
    return lines[-1][:300]
