"""`RankProcesses`: starts the ranks of learner 'deepspeed' and sends them requests.

    N processes `ragen.learning.learners.deepspeed.rank` -> each connects to a socket -> requests, answers

If one rank dies or fails, all are ended: the others would wait for it, and partly updated weights are useless. The
socket closes with this process, and the ranks exit with it.

torchrun is not used: its rendezvous store listens on the network and unpickles what any client writes. Here, ranks
rendezvous through a file in a folder private to this user, and communicate over the loopback interface.
"""

import contextlib
import json
import os
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
from typing import IO, Any, NamedTuple, NoReturn, cast

from starpo.ragen.config.device import Device
from starpo.ragen.core import errors
from starpo.ragen.core.errors import LearnerError, StarPOError
from starpo.ragen.core.frames import read_frame, write_frame
from starpo.ragen.learning.learners.learner import OnProgress

SOCKET = "socket"
"""File name of this process's socket in the folder shared with the ranks."""
_START_S = 300.0
_GRACE_S = 3.0
_REPORT_S = 15.0
_NUM_LINES = 12


class RankProcesses:
    """Running ranks that answer requests."""

    def __init__(self, num_ranks: int) -> None:
        """Start the ranks, and wait until their process group is initialised.

        Args:
            num_ranks: Number of ranks.

        Raises:
            LearnerError: If they do not start.
        """
        self.num_ranks = num_ranks
        self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._connections: dict[int, _Connection] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        listener = socket.socket(socket.AF_UNIX)
        try:
            with listener:
                listener.bind(str(self._folder / SOCKET))
                listener.listen(num_ranks)
                listener.settimeout(0.2)
                for rank in range(num_ranks):
                    self._processes.append(self._start(rank))
                self._meet(listener)
        except BaseException:
            self.close()
            raise

    @property
    def are_alive(self) -> bool:
        """Whether all ranks are running and connected."""
        return not self._ended() and len(self._connections) == self.num_ranks

    def ask(
        self, request: Mapping[str, Any], data: bytes = b"", on_progress: OnProgress | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request to all ranks and wait for all answers.

        Args:
            request: The request, as JSON.
            data: What comes with it.
            on_progress: Called with what rank 0 reports meanwhile.

        Returns:
            Rank 0's answer.

        Raises:
            StarPOError: What a rank raised: of the same type if that is one of the library's, else LearnerError.
                LearnerError also if a rank died. All ranks are ended.
        """
        try:
            for connection in self._connections.values():
                connection.send(json.dumps(dict(request)).encode(), data)
            return self._answers(is_final=True, on_progress=on_progress)[0]
        except OSError:
            self._fail({})

    def close(self) -> None:
        """Kill all ranks and wait for them to exit."""
        for connection in self._connections.values():
            connection.close()
        self._connections = {}
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        ids = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.num_ranks, "LOCAL_WORLD_SIZE": self.num_ranks}
        with self._log(rank, "stdout").open("wb") as stdout, self._log(rank, "stderr").open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "starpo.ragen.learning.learners.deepspeed.rank", str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **_environment(), **{name: str(value) for name, value in ids.items()}},
                start_new_session=True,  # only this process handles an interrupt at the terminal
            )

    def _meet(self, listener: socket.socket) -> None:
        deadline = time.monotonic() + _START_S
        while len(self._connections) < self.num_ranks:
            if self._ended() or time.monotonic() > deadline:
                self._fail({})
            with contextlib.suppress(TimeoutError):
                connection = _Connection(listener.accept()[0])
                self._connections[connection.rank] = connection
        self._answers(is_final=False)

    def _answers(
        self, *, is_final: bool, on_progress: OnProgress | None = None
    ) -> dict[int, tuple[dict[str, Any], bytes]]:
        """Wait for the answers of all ranks; `is_final`: they are followed by data."""
        answers: dict[int, tuple[dict[str, Any], bytes]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, connection in self._connections.items():
                selector.register(connection.socket, selectors.EVENT_READ, rank)
            while len(answers) < self.num_ranks:
                for key, _ in selector.select():
                    try:
                        answer = self._connections[key.data].receive(has_data=is_final)
                    except (EOFError, OSError, _Failed) as error:
                        self._fail({key.data: error})
                    if not isinstance(answer, _Progress):
                        answers[key.data] = answer
                        selector.unregister(key.fileobj)
                    elif on_progress is not None:
                        on_progress(*answer)
        return answers

    def _fail(self, failures: dict[int, Exception]) -> NoReturn:
        """Determine the cause of a failure, end the ranks and raise it.

        The cause is a rank that died, not the ranks that report errors because of it. So wait a moment for all reports.
        """
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline and not any(isinstance(error, EOFError) for error in failures.values()):
            if len(failures) == self.num_ranks or any(_is_ours(error) for error in failures.values()):
                break
            for rank in set(self._connections) - set(failures):
                try:
                    if self._connections[rank].is_readable(0.1):
                        self._connections[rank].receive(has_data=True)
                except (EOFError, OSError, _Failed) as error:
                    failures[rank] = error
        dead = sorted(rank for rank, error in failures.items() if not isinstance(error, _Failed))
        ours = [error for error in failures.values() if isinstance(error, _Failed) and _is_ours(error)]
        cause = self._error(dead, failures) if dead or not ours else ours[0].error()
        self.close()
        raise cause

    def _error(self, dead: list[int], failures: Mapping[int, Exception]) -> StarPOError:
        if not dead and failures:
            rank, failed = next(iter(failures.items()))
            assert isinstance(failed, _Failed)
            return failed.error(f"rank {rank} of {self.num_ranks} of learner 'deepspeed' failed: ")
        statuses = {rank: self._status(rank) for rank in dead or self._ended()}
        killed = [rank for rank, status in statuses.items() if status == -signal.SIGKILL]  # the likely cause of others
        rank = (killed or list(statuses) or [0])[0]
        status = statuses.get(rank)
        how = "" if status is None else f" with exit status {status}"
        if status == -signal.SIGKILL:
            how = ", killed (signal 9, which the kernel sends when memory runs out)"
        lines = [line for line in _text(self._log(rank, "stderr")).splitlines() if line.strip()][-_NUM_LINES:]
        who = f"rank {rank} of {self.num_ranks} of learner 'deepspeed' died{how}" if dead else (
            f"the {self.num_ranks} ranks of learner 'deepspeed' did not start{how}"
        )  # fmt: skip
        output = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return LearnerError(
            f"{who}. The others were stopped, and the stored checkpoint is untouched; update again. If memory ran out: "
            "a higher update.deepspeed.zero_stage, update.deepspeed.offload_optimizer, update.lora or a smaller "
            f"update.micro_batch_tokens (for a fine-tuning, those of policy.fine_tuning). Its last output:\n{output}"
        )

    def _status(self, rank: int) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._processes[rank].wait(timeout=_REPORT_S)
        return None

    def _ended(self) -> list[int]:
        return [rank for rank, process in enumerate(self._processes) if process.poll() is not None]

    def _log(self, rank: int, name: str) -> Path:
        return self._folder / f"{rank}.{name}"


def _environment() -> dict[str, str]:
    settings = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    settings |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    return settings if Device.here().is_gpu else {**settings, "DS_ACCELERATOR": "cpu"}


class _Failed(Exception):  # noqa: N818
    """Failure that a rank reported."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def error(self, prefix: str = "") -> StarPOError:
        """Return the error, of its own type if that is one of the library's, else a LearnerError."""
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, StarPOError):
            return kind(str(self))
        return LearnerError(f"{prefix}{self}")


def _is_ours(error: Exception) -> bool:
    return isinstance(error, _Failed) and isinstance(getattr(errors, error.kind, None), type)


class _Progress(NamedTuple):
    """What rank 0 reports while it works on a request."""

    done: int
    total: int


class _Connection:
    """Connection to one rank."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        self.socket = connection
        # nothing is read ahead: a message in a buffer would not wake up whoever waits for the socket
        self._stream = cast(IO[bytes], connection.makefile("rwb", buffering=1))
        _, hello = read_frame(self._stream)
        values = json.loads(hello)
        self.rank, self.pid = int(values["rank"]), int(values["pid"])

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            write_frame(self._stream, b"Q", payload)

    def receive(self, *, has_data: bool) -> tuple[dict[str, Any], bytes] | _Progress:
        kind, header = read_frame(self._stream)
        if kind == b"P":
            return _Progress(*json.loads(header))
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
