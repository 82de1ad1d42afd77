"""Refuses requests of other hosts, other pages and other users, and sets the security headers.

A page of another site can send requests to a port of this machine, and can resolve its own name to
127.0.0.1 (DNS rebinding), so ``Host`` and ``Origin`` are checked. Another user of this machine can
connect to the port, so each request for data must contain the token in a header. A cookie would be
sent to every port of the host, and a parameter would be in logs and in the browser's history.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The request header that contains the token.
TOKEN_HEADER = "X-TorchX-Token"  # noqa: S105 - the name of a header
#: The hosts by which a browser on this machine reaches the server, also through an ssh tunnel.
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI middleware that checks host, origin and token, and adds the security headers.

    Args:
        app: The application.
        token: The token that requests for data must contain.
        policy: The Content Security Policy of all answers.
        hosts: Further host names that ``Host`` and ``Origin`` may have, such as that of JupyterHub.
    """

    def __init__(self, app: ASGIApp, token: str, policy: str, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._headers = {**_HEADERS, "Content-Security-Policy": policy}
        self._token = token.encode()
        self._hosts = {name.lower() for name in (*LOOPBACK_HOSTS, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets
            return
        problem = self._problem(scope)
        app: ASGIApp = self._app
        if problem is not None:
            app = JSONResponse({"error": problem[1]}, problem[0])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await app(scope, receive, send_with_headers)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and message for a request that is refused, else None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name(f"//{host}") not in self._hosts:
            return 421, f"the host '{host:.100}' is not allowed; --allow-host adds a host"
        origin = headers.get("origin")
        if origin is not None and (
            not origin.startswith(("http://", "https://")) or _name(origin) not in self._hosts
        ):
            return 403, f"requests of the origin '{origin:.100}' are not allowed"
        is_page = scope["path"].partition("/api/")[1] == "" and scope["method"] in ("GET", "HEAD")
        token = headers.get(TOKEN_HEADER, "").encode()
        if not is_page and not secrets.compare_digest(token, self._token):
            return 401, (
                "the token is missing or wrong; open the address that 'torchx dashboard' printed"
            )
        return None


def _name(address: str) -> str:
    """Return the host name of an address in lower case, or an empty string."""
    try:
        parts = urlsplit(address)
        return "" if "@" in parts.netloc else (parts.hostname or "").lower()
    except ValueError:
        return ""
