"""`RankProcesses`: the ranks of learner 'deepspeed', started by torchrun, seen from the process that asks them.

    torchrun -> N processes `ragen.learning.learners.deepspeed_rank` -> each connects to a socket -> requests, answers

A rank that dies or fails ends them all: the others would wait for it, and weights that are half updated are of no use.
The socket ends with this process, and with it the ranks.
"""

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import torch

from starpo.ragen.core import errors
from starpo.ragen.core.errors import LearnerError, StarPOError
from starpo.ragen.core.frames import read_frame, write_frame

_START_S = 300.0
_GRACE_S = 3.0
_REPORT_S = 15.0
_NUM_LINES = 12


class RankProcesses:
    """Some ranks, ready for requests."""

    def __init__(self, num_ranks: int) -> None:
        """Start them, and wait until they have met.

        Args:
            num_ranks: How many.

        Raises:
            LearnerError: If they do not start.
        """
        self.num_ranks = num_ranks
        self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._connections: dict[int, _Connection] = {}
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"),
            *("--max-restarts=0", "--redirects=3", f"--log-dir={self._folder / 'logs'}"),
            *("-m", "starpo.ragen.learning.learners.deepspeed_rank", str(self._folder / "socket")),
        ]
        listener = socket.socket(socket.AF_UNIX)
        try:
            with listener, (self._folder / "torchrun.log").open("wb") as log:
                listener.bind(str(self._folder / "socket"))
                listener.listen(num_ranks)
                listener.settimeout(0.2)
                self._torchrun = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **_environment()},
                    start_new_session=True,  # an interrupt at the terminal is this process's to handle
                )
                self._meet(listener)
        except BaseException:
            self.close()
            raise

    @property
    def are_alive(self) -> bool:
        """Can they still be asked?"""
        return self._torchrun.poll() is None and len(self._connections) == self.num_ranks

    def ask(self, request: Mapping[str, Any], data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Send a request to all ranks and wait for all answers.

        Returns:
            Rank 0's answer.

        Raises:
            StarPOError: What a rank raised, of its own type where that is one of the library's. LearnerError if a rank
                died. The ranks are gone then.
        """
        try:
            for connection in self._connections.values():
                connection.send(json.dumps(dict(request)).encode(), data)
            return self._answers(is_final=True)[0]
        except OSError:
            self._fail({})

    def close(self) -> None:
        """End them. No rank is left when this returns."""
        for connection in self._connections.values():
            connection.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(connection.pid, signal.SIGKILL)
        self._connections = {}
        torchrun = getattr(self, "_torchrun", None)
        if torchrun is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                torchrun.terminate()  # it ends ranks that have not said who they are
                torchrun.wait(timeout=10)
            torchrun.kill()
            torchrun.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _meet(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + _START_S
        while len(self._connections) < self.num_ranks:
            if self._torchrun.poll() is not None or time.monotonic() > deadline:
                self._fail({})
            with contextlib.suppress(TimeoutError):
                connection = _Connection(listener.accept()[0])
                self._connections[connection.rank] = connection
        self._answers(is_final=False)

    def _answers(self, *, is_final: bool) -> dict[int, tuple[dict[str, Any], bytes]]:
        """Of all ranks; `is_final`: with data."""
        answers: dict[int, tuple[dict[str, Any], bytes]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, connection in self._connections.items():
                selector.register(connection.socket, selectors.EVENT_READ, rank)
            while len(answers) < self.num_ranks:
                for key, _ in selector.select():
                    try:
                        answers[key.data] = self._connections[key.data].receive(has_data=is_final)
                    except (EOFError, OSError, _Failed) as error:
                        self._fail({key.data: error})
                    selector.unregister(key.fileobj)
        return answers

    def _fail(self, found: dict[int, Exception]) -> NoReturn:
        """Find out what happened, end the ranks, and raise it.

        A rank that died is the cause, and others that complain of it are not; so they are given a moment to do so.
        """
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and not any(isinstance(error, EOFError) for error in found.values()):
            if len(found) == self.num_ranks or any(_is_ours(error) for error in found.values()):
                break
            for rank in set(self._connections) - set(found):
                try:
                    if self._connections[rank].is_readable(0.1):
                        self._connections[rank].receive(has_data=True)
                except (EOFError, OSError, _Failed) as error:
                    found[rank] = error
        dead = sorted(rank for rank, error in found.items() if not isinstance(error, _Failed))
        ours = [error for error in found.values() if isinstance(error, _Failed) and _is_ours(error)]
        cause = self._error(dead, found) if dead or not ours else ours[0].error()
        self.close()
        raise cause

    def _error(self, dead: list[int], found: Mapping[int, Exception]) -> StarPOError:
        if not dead and found:
            rank, failed = next(iter(found.items()))
            assert isinstance(failed, _Failed)
            return failed.error(f"rank {rank} of {self.num_ranks} of learner 'deepspeed' failed: ")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._torchrun.wait(timeout=_REPORT_S)  # it writes down how a rank ended
        report = _text(self._folder / "torchrun.log")
        cause = report.partition("Root Cause")[2]  # torchrun ends the other ranks: they have died as well by now
        first, status = re.search(r"\brank\s*:\s*(\d+)", cause), re.search(r"exitcode\s*:\s*(-?\d+)", cause)
        how = f" with exit status {status[1]}" if status else ""
        if status and int(status[1]) == -signal.SIGKILL:
            how = ", killed (signal 9; the kernel does that where memory is short)"
        rank = int(first[1]) if first else (dead or [0])[0]
        lines = self._last_lines(rank) or report.splitlines()[-_NUM_LINES:]
        who = f"rank {rank} of {self.num_ranks} of learner 'deepspeed' died{how}" if dead else (
            f"the {self.num_ranks} ranks of learner 'deepspeed' did not start{how}"
        )  # fmt: skip
        said = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return LearnerError(
            f"{who}. The others were ended, and the stored checkpoint is untouched; update again. If memory was short: "
            "a higher update.deepspeed.zero_stage, update.deepspeed.offload_optimizer, update.lora or a smaller "
            f"update.micro_batch_tokens. It said last:\n{said}"
        )

    def _last_lines(self, rank: int) -> list[str]:
        logs = sorted((self._folder / "logs").glob(f"**/{rank}/stderr.log"))
        return [line for line in _text(logs[-1]).splitlines() if line.strip()][-_NUM_LINES:] if logs else []


def _environment() -> dict[str, str]:
    settings = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if not torch.cuda.is_available():
        settings |= {"DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo"}
    return settings


class _Failed(Exception):  # noqa: N818
    """A rank answered that it failed."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def error(self, prefix: str = "") -> StarPOError:
        """Of its own type where that is one of the library's."""
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, StarPOError):
            return kind(str(self))
        return LearnerError(f"{prefix}{self}")


def _is_ours(error: Exception) -> bool:
    return isinstance(error, _Failed) and isinstance(getattr(errors, error.kind, None), type)


class _Connection:
    """One rank's end of the socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        self.socket = connection
        self._stream = cast(IO[bytes], connection.makefile("rwb"))
        _, hello = read_frame(self._stream)
        values = json.loads(hello)
        self.rank, self.pid = int(values["rank"]), int(values["pid"])

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            write_frame(self._stream, b"Q", payload)

    def receive(self, *, has_data: bool) -> tuple[dict[str, Any], bytes]:
        kind, header = read_frame(self._stream)
        if kind == b"F":
            failure = json.loads(header)
            raise _Failed(failure["type"], failure["message"])
        return json.loads(header), read_frame(self._stream)[1] if has_data else b""

    def is_readable(self, timeout_s: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        self.socket.close()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
