"""The endpoint: an OpenAI-compatible server on 127.0.0.1 behind which the policy of a rollout answers.

    program -> HTTP -> key, limits -> ChatRequest -> queue of PendingCall -> (player) -> Reply or Refusal -> HTTP

The server runs in a thread of its own, and knows keys and bodies, not tokens. Each trajectory has a key, which is all
that a request tells about itself: whoever holds one reaches that trajectory and nothing else. A hostile program is
contained: bodies, waiting calls, connections and the time to send a request are limited, and at the limit of
connections the oldest one without a request in progress makes room. What was refused is kept with the trajectory, since
the frameworks between a program and its client may swallow the reason.
"""

import asyncio
import hashlib
import logging
import secrets
import socket
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, cast

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from starpo.ragen.core.errors import EngineError
from starpo.ragen.methods.programs.album import Album
from starpo.ragen.methods.programs.chat import ChatRequest, Refusal, RunSampling
from starpo.ragen.methods.programs.replies import Reply, error, models
from starpo.ragen.methods.programs.requests import read_request
from starpo.ragen.methods.programs.responses import as_chat, responded
from starpo.ragen.methods.programs.responses import events as response_events
from starpo.ragen.methods.programs.served import Served

MAX_BODY_BYTES = 4 << 20
MAX_CONNECTIONS = 512
MAX_OPEN = 64
"""Calls of one trajectory in progress at a time."""
MAX_REFUSED = 256
"""Refusals after which nothing of a trajectory is read any more, and its program is ended."""
MAX_CHUNKS = 2_000
"""Chunks of a body, each of which costs as much as a kilobyte."""
SENDING_S = 10.0
"""Time to send a request's headers, and then its body."""
STARTING_S = 30.0
_PIECE = 512
_MAX_PATH = 200
_IN_PIECES = "starpo.in_pieces"
_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/models")

_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.ERROR)  # what programs send is no news; faults of this module are


@dataclass(eq=False)
class PendingCall:
    """A call that waits for its answer.

    Attributes:
        trajectory_id: The trajectory whose key it brought.
        request: What it asks for.
        arrived: When it had been read, on the monotonic clock.
        answered: Its answer, once there is one; cancelled if the program has closed the connection.
    """

    trajectory_id: str
    request: ChatRequest
    arrived: float = field(default_factory=time.monotonic)
    answered: "Future[Reply | Refusal]" = field(default_factory=Future)

    @property
    def is_abandoned(self) -> bool:
        """Whether the program has closed the connection, so that it will not hear the answer."""
        return self.answered.cancelled()

    def answer(self, answer: Reply | Refusal) -> None:
        """Answer from any thread; without effect if the program no longer waits."""
        with suppress(InvalidStateError):
            self.answered.set_result(answer)


@dataclass
class _Client:
    """A trajectory as the server knows it."""

    trajectory_id: str
    sampling: RunSampling
    album: Album | None
    served: Served = field(default_factory=Served)
    num_open: int = 0
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Endpoint:
    """The server. `admit` a trajectory, take its `calls`, `retire` it; a context manager that starts and stops it.

    Attributes:
        url: Base URL for clients, such as `http://127.0.0.1:40001/v1`.
    """

    def __init__(self) -> None:
        """Bind a free port of the loopback interface."""
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._clients: dict[bytes, _Client] = {}  # by the digest of the key, so that looking up tells nothing of it
        self._calls: SimpleQueue[PendingCall] = SimpleQueue()
        config = uvicorn.Config(
            self._serve, http=_Connection, ws="none", lifespan="off", loop="asyncio", log_config=None,
            access_log=False, server_header=False, date_header=False, timeout_keep_alive=60, interface="asgi3",
            proxy_headers=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._server.force_exit = True  # at the end nobody waits for connections that are still open
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)

    def __enter__(self) -> "Endpoint":
        """Start serving.

        Raises:
            EngineError: If the server does not start.
        """
        self._thread.start()
        stop_at = time.monotonic() + STARTING_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > stop_at:
                raise EngineError("the endpoint for programs cannot be started on 127.0.0.1; is loopback blocked here?")
            time.sleep(0.002)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving and close all connections."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def admit(self, trajectory_id: str, sampling: RunSampling | None = None, *, takes_images: bool = False) -> str:
        """Return a new key for a trajectory, whose responses are sampled like this, whatever its requests say."""
        key = secrets.token_urlsafe(32)
        album = Album() if takes_images else None
        self._clients[_digest(key)] = _Client(trajectory_id, sampling or RunSampling(), album)
        return key

    def num_refused(self, key: str) -> int:
        """Return how many requests of a trajectory were refused up to now."""
        return self._clients[_digest(key)].served.num_refused

    def retire(self, key: str) -> Served:
        """End a trajectory: its key is unknown from now on. Return what its requests were."""
        return self._clients.pop(_digest(key)).served.copy()

    def calls(self, timeout_s: float) -> list[PendingCall]:
        """Return the calls that have come since the last time; if there are none, wait for the first one."""
        calls = []
        try:
            calls.append(self._calls.get(timeout=timeout_s) if timeout_s > 0 else self._calls.get_nowait())
            while True:
                calls.append(self._calls.get_nowait())
        except Empty:
            return calls

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        try:
            response = await self._response(Request(scope, receive))
        except Refusal as refusal:
            # What is left of such a request is not read.
            headers = {"connection": "close"} if refusal.status in (401, 408, 413, 429) else None
            response = Response(error(refusal), refusal.status, headers, "application/json")
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        client = self._client(request)
        client.served.num_requests += 1
        number = client.served.num_requests
        if client.served.num_refused >= MAX_REFUSED:
            message = f"{MAX_REFUSED} requests of this trajectory were refused: no further one is read"
            raise Refusal(message, code="too_many_refusals", status=429)
        try:
            return await self._answered(client, request)
        except Refusal as refusal:
            if refusal.code != "disconnected":
                place = f"{request.method} {request.scope['path'][:_MAX_PATH]}"
                client.served.refuse(refusal, place, number, getattr(request.state, "body", b""))
            raise

    async def _answered(self, client: _Client, request: Request) -> Response:
        route = request.method, request.scope["path"]
        if route == ("GET", "/v1/models"):
            return Response(models(), media_type="application/json")
        if route not in (("POST", "/v1/chat/completions"), ("POST", "/v1/responses")):
            message = f"there is no {' '.join(route)[:_MAX_PATH]} here, only {', '.join(_PATHS)}"
            raise Refusal(message, code="not_found", status=404)
        is_chat = route[1] != "/v1/responses"
        if client.num_open >= MAX_OPEN:
            raise Refusal(f"{MAX_OPEN} calls are in progress already", code="too_many_calls", status=429)
        client.num_open += 1
        try:
            body = request.state.body = await _body(request)
            chat_request = await _read(client, body if is_chat else as_chat(body))
            client.served.overridden.update(chat_request.overridden)
            answer = await self._answer(client.trajectory_id, chat_request, request)
        finally:
            client.num_open -= 1
        if chat_request.is_streamed:  # the whole response is there already
            events = answer.events(chat_request.has_usage) if is_chat else response_events(answer)
            return Response(b"".join(events), media_type="text/event-stream")
        return Response(answer.completion() if is_chat else responded(answer), media_type="application/json")

    def _client(self, request: Request) -> _Client:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        client = self._clients.get(_digest(key))
        if client is None or scheme != "Bearer":
            raise Refusal(
                "the key is unknown: send the one in OPENAI_API_KEY, and only while its program runs",
                code="invalid_api_key",
                status=401,
            )
        return client

    async def _answer(self, trajectory_id: str, chat_request: ChatRequest, request: Request) -> Reply:
        """Wait for the player's answer, or until the program has closed the connection."""
        call = PendingCall(trajectory_id, chat_request)
        self._calls.put(call)
        closed = asyncio.ensure_future(request.receive())
        answered = asyncio.wrap_future(call.answered)
        await asyncio.wait((answered, closed), return_when=asyncio.FIRST_COMPLETED)
        closed.cancel()
        if not answered.done():
            call.answered.cancel()
            raise Refusal("the connection was closed", code="disconnected")
        answer = answered.result()
        if isinstance(answer, Refusal):
            raise answer
        return answer


async def _read(client: _Client, body: bytes) -> ChatRequest:
    if client.album is None:
        return read_request(body, client.sampling)
    async with client.reading:  # images take their time, but only one thread for each program
        return await asyncio.to_thread(read_request, body, client.sampling, client.album)


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(SENDING_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY_BYTES:
                    raise Refusal(f"the body exceeds {MAX_BODY_BYTES:,} bytes", code="body_too_large", status=413)
    except TimeoutError:
        late = f"the body did not arrive within {SENDING_S:g} s"
        raise Refusal(late, code="request_timeout", status=408) from None
    except ClientDisconnect:
        raise Refusal("the connection was closed", code="disconnected") from None
    if _IN_PIECES in request.scope:
        message = f"the body comes in more than {MAX_CHUNKS:,} chunks: send larger ones, or its length"
        raise Refusal(message, code="body_too_large", status=413)
    return bytes(body)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


class _Connection(H11Protocol):
    """A connection with limits: on their number, and on the time until its request's headers have come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = _LOG
        # An answer is written in two parts, of which the second would wait for the first to be acknowledged.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began = self.loop.time()
        self.loop.call_later(SENDING_S, self._end_if_idle)
        open_ones = [one for one in self.connections if isinstance(one, _Connection) and not one.transport.is_closing()]
        if len(open_ones) > MAX_CONNECTIONS:
            min((one for one in open_ones if one.is_idle), key=lambda one: one.began, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what has come; of a body in too many chunks, each of which is parsed for itself, nothing more."""
        while data and self.is_idle:  # headers, in small pieces: they say how the body comes
            super().data_received(data[:_PIECE])
            data, self.num_chunks = data[_PIECE:], 0
        if (b"transfer-encoding", b"chunked") in (self.headers or ()):
            self.num_chunks += data.count(b"\r\n") // 2
            if self.num_chunks > MAX_CHUNKS and self.cycle is not None:
                cast(dict[str, Any], self.scope)[_IN_PIECES] = True
                self.cycle.more_body = False
                self.cycle.message_event.set()
                return
        if data:  # nothing would mean the end of the connection
            super().data_received(data)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _end_if_idle(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()
