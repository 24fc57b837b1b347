"""Who is answered: pages of this server in a browser on this machine, or whoever has the token.

A page of another site can make a browser send requests here, by this address or by a name that it lets point here. So
the `Host` of a request must be ours, and a browser must say that the request comes from our own page, or that a user
has opened an address.
"""

import hmac

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_COOKIE = "starpo_view"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """ASGI middleware that refuses what is not asked by a page of this server, and adds headers that keep pages apart.

    Args:
        app: The application.
        port: Port of the server.
        token: What a browser must know, once, to be answered; then the server may have any name. '': it must be opened
            as a server of this machine.
    """

    def __init__(self, app: ASGIApp, port: int, token: str = "") -> None:
        self._app, self._token = app, token
        self._hosts = [f"{name}:{port}" for name in _LOOPBACK] + ([*_LOOPBACK] if port == 80 else [])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET: this server changes nothing", 405)
        if not self._token and request.headers.get("host", "").lower() not in self._hosts:
            return PlainTextResponse("this server has another address: the one that `starpo view` printed", 421)
        site, mode = (request.headers.get(f"sec-fetch-{name}") for name in ("site", "mode"))
        if site not in (None, "none", "same-origin") and mode != "navigate":
            return PlainTextResponse("asked by a page of another site", 403)
        if not self._token or self._is_token(request.cookies.get(_COOKIE, "")):
            return None
        if not self._is_token(request.query_params.get("token", "")):
            return PlainTextResponse("open the address with the token that `starpo view` printed", 401)
        target = request.url.remove_query_params("token")
        response = RedirectResponse(f"{target.path}?{target.query}" if target.query else target.path)
        response.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
        return response

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())
