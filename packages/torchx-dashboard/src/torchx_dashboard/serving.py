"""Opens the port, writes the redirect file, and serves until the command is interrupted."""

from __future__ import annotations

import html
import json
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import uvicorn

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import home_path
from torchx_specs.errors import BackendError

#: How long running requests and schedulers have when the command is interrupted, in seconds.
_STOP_SECONDS = 3.0

if TYPE_CHECKING:
    from starlette.applications import Starlette


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Args:
        host: An address of this machine.
        port: The port; 0 means a free one.

    Raises:
        BackendError: The address is in use or does not belong to this machine.
    """
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    dual = is_ipv6 and socket.has_dualstack_ipv6()  # as the system's own default
    try:
        return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=dual)
    except OSError as e:
        reason = str(e.strerror).partition(" (while")[0]  # the message repeats the address
        hint = "; --port 0 chooses a free port" if port else ""
        raise BackendError(f"cannot listen on {host}, port {port}: {reason}{hint}") from None


def address_of(server: socket.socket, prefix: str = "") -> str:
    """Return the address of the page, without the token."""
    host, port = server.getsockname()[:2]
    path = f"/{prefix.strip('/')}/" if prefix.strip("/") else "/"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


def write_redirect(address: str) -> str:
    """Write a page that redirects to an address with a token, and return the page's path.

    The arguments of a browser are visible to all users of a machine, but only this user can read
    the file.

    Args:
        address: The address.
    """
    folder = home_path("dashboard")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, f"open-{os.getpid()}.html")
    script = json.dumps(address).replace("<", "\\u003c")
    text = (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f"<title>TorchX</title><script>location.replace({script})</script>"
        f'<a href="{html.escape(address)}" rel="noreferrer">Open the dashboard</a>\n'
    )
    write_atomically(path, text, 0o600)
    return path


def serve(app: Starlette, server: socket.socket, stopping: Callable[[], object]) -> None:
    """Serve an application until the process is interrupted.

    Args:
        app: The application.
        server: The listening socket.
        stopping: Called when the server begins to stop.
    """

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stopping()
            # The thread of a scheduler that hangs would keep the process from ending.
            watchdog = threading.Timer(_STOP_SECONDS, os._exit, (0,))
            watchdog.daemon = True
            watchdog.start()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    Server(config).run(sockets=[server])
