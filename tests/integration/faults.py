"""Proxy on loopback between an HTTP client and a server, which injects faults and records the requests.

    with FaultyProxy(endpoint) as proxy:                      every request passes
        proxy.schedule = scripted([Fault.LOST])               the next request fails in this way, later ones pass
        proxy.schedule = seeded(7, rate=0.1)                  one in ten fails, drawn with a seed
        proxy.requests                                        requests with their faults and the answers' statuses

It forwards one request per connection and then closes it, so that every fault hits the intended request.
"""

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

DRIP_S = 0.02
"""Pause between the pieces of a slow response."""

_SLOW_DOWN = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>'
_FULL = b'<?xml version="1.0"?><Error><Code>XMinioStorageFull</Code><Message>Storage is full.</Message></Error>'
_ERROR = b'<?xml version="1.0"?><Error><Code>InternalError</Code><Message>We met an error.</Message></Error>'
_DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>'
_HTML = b"<html><body>Welcome to some other service.</body></html>"


class Fault(Enum):
    """Fault of a request."""

    RESET_BEFORE = "reset before the request was read"
    RESET_REQUEST = "reset in the middle of the request"
    RESET_RESPONSE = "reset in the middle of the response; what was asked for was done"
    TRUNCATED = "response ends early, politely; what was asked for was done"
    LOST = "reset instead of a response; what was asked for was done"
    SLOW_DOWN = "503 SlowDown; nothing was done"
    ERROR = "500 InternalError; nothing was done"
    ERROR_AFTER = "500 InternalError, although what was asked for was done"
    SLOW = "response in small pieces with pauses"
    SILENT = "no response; nothing was done"
    FULL = "507: the server's disks are full"
    DENIED = "403: no right to do that"
    HTML = "404 with a page: some other service"
    PAGE = "200 with a page: some other service"


PASSING = (
    Fault.RESET_BEFORE,
    Fault.RESET_REQUEST,
    Fault.RESET_RESPONSE,
    Fault.TRUNCATED,
    Fault.LOST,
    Fault.SLOW_DOWN,
    Fault.ERROR,
    Fault.ERROR_AFTER,
    Fault.SLOW,
)
"""Transient faults, which a retry may overcome."""


@dataclass(frozen=True)
class Request:
    """Record of a request.

    Attributes:
        method: GET, PUT, ...
        path: Path with its query.
        fault: Injected fault; None if there was none.
        status: Status of the server's answer; 0 if the request was not forwarded.
        size_bytes: Size of the answer's body.
    """

    method: str
    path: str
    fault: Fault | None
    status: int
    size_bytes: int


Schedule = Callable[[str, str], Fault | None]
"""(method, path) of a request -> its fault. Called in order of arrival, one request at a time."""


def scripted(faults: Iterable[Fault | None], only: Callable[[str, str], bool] = lambda method, path: True) -> Schedule:
    """Schedule of these faults in turn, one per request that `only` selects; then none."""
    waiting = iter(list(faults))
    return lambda method, path: next(waiting, None) if only(method, path) else None


def seeded(seed: int, rate: float, faults: Iterable[Fault] = PASSING) -> Schedule:
    """Schedule of a fault with probability `rate` per request, drawn with a seeded generator."""
    draw, choices = random.Random(seed), list(faults)
    return lambda method, path: draw.choice(choices) if draw.random() < rate else None


def always(fault: Fault, only: Callable[[str, str], bool] = lambda method, path: True) -> Schedule:
    """Schedule of the same fault for every request that `only` selects."""
    return lambda method, path: fault if only(method, path) else None


class FaultyProxy:
    """The proxy; a context manager.

    Attributes:
        url: Address of the proxy.
        schedule: Gives the faults of requests from now on.
        requests: Requests so far, in the order in which they were recorded.
    """

    def __init__(self, upstream: str, schedule: Schedule = lambda method, path: None) -> None:
        self.schedule = schedule
        self.requests: list[Request] = []
        self._upstream = urlsplit(upstream)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_fault(self, method: str, path: str) -> Fault | None:
        """Return the fault of this request."""
        with self._lock:
            return self.schedule(method, path)

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Forward the request to the server; returns status, headers and body of its answer."""
        assert self._upstream.hostname is not None
        connection = http.client.HTTPConnection(self._upstream.hostname, self._upstream.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def note(self, request: Request) -> None:
        """Record a request."""
        with self._lock:
            self.requests.append(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], proxy: FaultyProxy) -> None:
        super().__init__(address, _Handler)
        self.proxy = proxy
        self.closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no traceback, since clients hang up too."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            return None
        self.close_connection = True
        proxy = self.server.proxy
        fault = proxy.next_fault(self.command, self.path)
        size = int(self.headers.get("Content-Length") or 0)
        if fault is Fault.RESET_BEFORE:
            return self._reset(fault)
        if fault is Fault.RESET_REQUEST:
            self.rfile.read(size // 2)
            return self._reset(fault)
        body = self.rfile.read(size)
        made_up = {
            Fault.SLOW_DOWN: (503, _SLOW_DOWN),
            Fault.ERROR: (500, _ERROR),
            Fault.FULL: (507, _FULL),
            Fault.DENIED: (403, _DENIED),
            Fault.HTML: (404, _HTML),
            Fault.PAGE: (200, _HTML),
        }
        if fault in made_up:
            proxy.note(Request(self.command, self.path, fault, 0, 0))
            return self._answer(made_up[fault][0], [], made_up[fault][1])
        if fault is Fault.SILENT:
            proxy.note(Request(self.command, self.path, fault, 0, 0))
            self.server.closing.wait(120)
            return None
        hop = {"connection", "expect", "transfer-encoding"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in hop}
        status, answered, data = proxy.forward(self.command, self.path, {**headers, "Connection": "close"}, body)
        proxy.note(Request(self.command, self.path, fault, status, len(data)))
        if fault is Fault.LOST:
            return self._reset(None)
        if fault is Fault.ERROR_AFTER:
            return self._answer(500, [], _ERROR)
        return self._answer(status, answered, data, fault)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, fault: Fault | None = None) -> None:
        kept = [(n, v) for n, v in headers if n.lower() not in ("connection", "transfer-encoding", "keep-alive")]
        if not any(name.lower() == "content-length" for name, _ in kept):
            kept.append(("Content-Length", str(len(data))))
        head = f"HTTP/1.1 {status} {http.client.responses.get(status, 'Status')}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in kept) + "Connection: close\r\n\r\n"
        whole = head.encode("latin-1") + data
        if fault is Fault.RESET_RESPONSE:
            self.wfile.write(whole[: len(head) // 2 if not data else len(head) + len(data) // 2])
            self.wfile.flush()
            time.sleep(0.01)  # otherwise the reset overtakes the data
            return self._reset(None)
        if fault is Fault.TRUNCATED:
            whole = whole[: len(head) // 2 if not data else len(head) + len(data) // 2]
        if fault is Fault.SLOW:
            step = max(1, len(whole) // 10)
            for start in range(0, len(whole), step):
                self.wfile.write(whole[start : start + step])
                time.sleep(DRIP_S)
            return None
        self.wfile.write(whole)
        return None

    def _reset(self, fault: Fault | None) -> None:
        if fault is not None:
            self.server.proxy.note(Request(self.command, self.path, fault, 0, 0))
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing; `FaultyProxy.requests` is the log."""
